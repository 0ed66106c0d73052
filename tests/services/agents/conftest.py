"""The four agents, each as a real service in front of a generation service that answers as told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.judge.spec import JudgeSpec
from dramaturg.testing import FakeGeneration, serve
from services.agents.commonsense.judge import SPEC as COMMONSENSE_SPEC
from services.agents.critic.judge import SPEC as CRITIC_SPEC
from services.agents.execute.judge import SPEC as EXECUTE_SPEC
from services.agents.synthesize.synthesizer import SPEC as SYNTHESIZE_SPEC
from tests.support.judges import TASK, all_pass, serve_app

AGENTS: dict[str, JudgeSpec[Any]] = {
    judge.role.name: judge for judge in (CRITIC_SPEC, EXECUTE_SPEC, COMMONSENSE_SPEC)
}
"""The agents that judge candidates."""


class Agents:
    """Asks the agents; every call starts the service anew, with the settings given."""

    def __init__(self, target: str, generation: FakeGeneration) -> None:
        self.generation = generation
        self._target = target

    async def ask(
        self,
        agent: str,
        candidate: Candidate,
        *,
        task: Task = TASK,
        reference: Script | None = None,
        pool: tuple[Candidate, ...] = (),
        options: JudgeOptions | None = None,
        **settings: Any,
    ) -> Assessment:
        service = AGENTS[agent](**{"generation_target": self._target, **settings})
        request = judge_request(task, [candidate], reference=reference, pool=pool, options=options)
        async with serve_app(service) as channel:
            return await judge_one(channel, request)

    async def synthesize(
        self, *candidates: Candidate, task: Task = TASK, options: JudgeOptions | None = None, **settings: Any
    ) -> SynthesizeResponse:
        service = SYNTHESIZE_SPEC(**{"generation_target": self._target, **settings})
        request = SynthesizeRequest(task=task, candidates=candidates, options=options)
        async with serve_app(service) as channel:
            return await SynthesizeServiceStub(channel).Synthesize(request)


@pytest.fixture
def generation() -> FakeGeneration:
    return FakeGeneration(all_pass)


@pytest.fixture
async def agents(generation: FakeGeneration) -> AsyncIterator[Agents]:
    async with serve(generation.contract()) as server:
        yield Agents(server.target, generation)
