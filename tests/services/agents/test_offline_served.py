"""The offline agents as services, asked over the network through the contracts of the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.judge.roles import COMMONSENSE, CRITIC, EXECUTE, JudgeRole
from dramaturg.service.channel import open_channel
from dramaturg.testing import serve
from services.agents.commonsense.judge import SPEC as COMMONSENSE_SPEC
from services.agents.critic.judge import SPEC as CRITIC_SPEC
from services.agents.execute.judge import SPEC as EXECUTE_SPEC
from services.embedding.settings import EmbeddingSettings
from tests.support.embedding import WarmApp
from tests.support.scripts import TEA, candidate, pool, tea_scripts


@pytest_asyncio.fixture
async def embedding_target() -> AsyncIterator[str]:
    async with WarmApp(EmbeddingSettings()).open() as contracts, serve(*contracts) as server:
        yield server.target


async def ask(app: Any, judged: Candidate) -> Assessment:
    request = judge_request(TEA, [judged], pool=pool(*tea_scripts(12)))
    async with (
        app.open() as contracts,
        serve(*contracts) as server,
        open_channel(server.target) as channel,
    ):
        return await judge_one(channel, request, timeout=30)


@pytest.mark.parametrize(
    ("role", "make", "name"),
    [
        (CRITIC, CRITIC_SPEC, "offline-critic"),
        (EXECUTE, EXECUTE_SPEC, "offline-execute"),
        (COMMONSENSE, COMMONSENSE_SPEC, "offline-commonsense"),
    ],
)
async def test_an_offline_agent_answers_its_contract(
    embedding_target: str, role: JudgeRole, make: Callable[..., Any], name: str
) -> None:
    app = make(backend="offline", embedding_target=embedding_target)
    assessment = await ask(app, candidate(["Fill the kettle.", "Fill the kettle.", "Drink the tea."]))
    assert tuple(verdict.criterion for verdict in assessment.verdicts) == role.criteria
    assert assessment.provenance.name == name
    assert assessment.provenance.contract == role.contract
    assert not assessment.provenance.usage.provider_call_count
    for verdict in assessment.verdicts:
        abstains = verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN
        assert abstains == (verdict.abstain_reason != verdict_pb2.ABSTAIN_REASON_UNSPECIFIED)
        assert verdict.rationale


async def test_an_agent_whose_embedding_service_is_down_still_answers() -> None:
    app = CRITIC_SPEC(backend="offline", embedding_target="127.0.0.1:9")
    assessment = await ask(app, candidate(["Fill the kettle.", "Drink the tea.", "Wash up."]))
    reasons = {verdict.abstain_reason for verdict in assessment.verdicts}
    assert reasons == {verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE}
