"""Declared judges: what follows from a specification."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.judge.criteria import COMPLETES_GOAL
from dramaturg.judge.criteria_judge import CriteriaQuestion
from dramaturg.judge.excerpts import ExcerptLimits
from dramaturg.judge.roles import JudgeRole
from dramaturg.judge.shapes import Text
from dramaturg.judge.spec import CriteriaSettings, JudgeSpec, criteria_spec
from dramaturg.service.contract import Contract
from dramaturg.service.installed import backends, settings_type
from dramaturg.testing import FakeGeneration, FakeJudge, completion, serve
from tests.support.judges import STEPS, TASK, candidate, section, serve_app

PROMPT = """# system
Judge whether the goal is met.

{{criteria}}

{{answer}}

# user
{{goal}}

{{candidate}}

# part completes_goal
Pass: the goal is met.
"""
ROLE = JudgeRole(name="goal-judge", criteria=(COMPLETES_GOAL,))


def spec(folder: Path, *, can_work_offline: bool = False) -> JudgeSpec[CriteriaSettings]:
    (folder / "goal.md").write_text(PROMPT, encoding="utf-8")

    def offline(embeddings: Any) -> Contract:
        del embeddings
        return FakeJudge(name="offline-goal-judge", criteria=ROLE.criteria).contract()

    return criteria_spec(
        role=ROLE,
        description="Has a language model judge whether a goal is met.",
        prompts=folder,
        question=CriteriaQuestion("goal", reasoning={"walk": Text("what each step does")}),
        offline=offline if can_work_offline else None,
    )


async def test_a_specification_is_a_service_with_an_identity_and_verdicts(tmp_path: Path) -> None:
    generation = FakeGeneration(lambda _: completion({"walk": "Nothing.", COMPLETES_GOAL: section("fail")}))
    async with (
        serve(generation.contract()) as server,
        serve_app(spec(tmp_path)(generation_target=server.target)) as channel,
    ):
        identity = (await IdentityServiceStub(channel).GetIdentity(GetIdentityRequest())).identity
        assessment = await judge_one(channel, judge_request(TASK, [candidate(*STEPS)]))
    assert (identity.name, list(identity.criteria)) == ("llm-goal-judge", [COMPLETES_GOAL])
    assert list(identity.prompt_token_counts) == ["goal"]
    assert assessment.provenance.name == "llm-goal-judge"
    assert [verdict.outcome for verdict in assessment.verdicts] == [verdict_pb2.OUTCOME_FAIL]
    assert "what each step does" in "".join(generation.messages)


def test_the_settings_are_those_of_the_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "dramaturg.toml"
    file.write_text('[goal-judge]\nmodel = "p/m"\nexcerpts.candidate = 5000\n', encoding="utf-8")
    monkeypatch.setenv("DRAMATURG_CONFIG", str(file))
    monkeypatch.setenv("DRAMATURG_GOAL_JUDGE_EXCERPTS__GOAL", "200")
    kind = settings_type(spec(tmp_path))
    settings = spec(tmp_path).settings_type()
    assert (kind.section, kind.variable("model")) == ("goal-judge", "DRAMATURG_GOAL_JUDGE_MODEL")
    assert (settings.model, settings.excerpts.candidate, settings.excerpts.goal) == ("p/m", 5000, 200)
    assert settings.excerpts.reference == ExcerptLimits().reference
    file.write_text("[goal-judge]\nbackend = 'offline'\n", encoding="utf-8")
    with pytest.raises(ValidationError, match="backend"):
        spec(tmp_path)()
    file.write_text("", encoding="utf-8")
    monkeypatch.setenv("DRAMATURG_GOAL_JUDGE_GENERATION_TARGET", "")
    with pytest.raises(ValidationError, match="generation_target"):
        spec(tmp_path)()


def test_a_judge_has_backends_if_it_can_work_without_a_model(tmp_path: Path) -> None:
    assert backends(settings_type(spec(tmp_path))) == ()
    assert set(backends(settings_type(spec(tmp_path, can_work_offline=True)))) == {"llm", "offline"}


async def test_the_offline_backend_calls_no_model_and_loads_no_prompt(tmp_path: Path) -> None:
    judge = spec(tmp_path, can_work_offline=True)
    await asyncio.to_thread((tmp_path / "goal.md").unlink)
    async with judge(backend="offline").open() as [contract]:
        assert contract.identity.name == "offline-goal-judge"
        assert contract.models is None
