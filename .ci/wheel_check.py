"""Uses the wheel without extras: stubs, client, a judge of the SDK, and fakes."""

from __future__ import annotations

import asyncio
import importlib.util
import runpy
from pathlib import Path

import dramaturg
from dramaturg import conformance
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.generation.v1.generation_service_pb2 import MESSAGE_ROLE_USER, GenerateRequest, Message
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.roles import CRITIC
from dramaturg.judge.steps import split_steps
from dramaturg.judge.verdicts import failed, passed
from dramaturg.service.channel import open_channel
from dramaturg.testing import FakeGeneration, FakeJudge, PlatformMissingError, serve, serve_gateway

EXAMPLE = Path(__file__).parents[1] / "examples" / "judges" / "terse_critic.py"
ABSENT = ("services", "gateway", "jinja2", "numpy", "openai", "rich", "torch", "typer")

for package in ABSENT:
    assert importlib.util.find_spec(package) is None, f"{package} came with the wheel"
for name in dramaturg.__all__:
    getattr(dramaturg, name)
assert split_steps("1. Boil water. 2. Add tea.") == ("Boil water.", "Add tea.")


class BriefJudge:
    """Passes candidates of at most three words."""

    name = "brief-judge"
    version = "1.0.0"
    description = "Counts words."
    criteria = ("brief",)
    capabilities = ()

    async def judge(self, item: JudgeItem) -> Assessment:
        """Judges one candidate."""
        words = len(item.candidate.text.split())
        verdict = passed("brief") if words <= 3 else failed("brief", rationale=f"{words} words")
        return Assessment(verdicts=[verdict])


async def main() -> None:
    """Serves a judge and a generation service and calls them."""
    request = JudgeRequest(task=Task(goal="Make tea"))
    request.candidates.add(id="a", text="Boil water.")
    request.candidates.add(id="b", text="Put the kettle on the stove.")
    async with serve(judge_contract(BriefJudge())) as server, open_channel(server.target) as channel:
        found = {one.candidate_id: one async for one in JudgeServiceStub(channel).Judge(request)}
    outcomes = {name: one.assessment.verdicts[0].outcome for name, one in found.items()}
    assert outcomes == {"a": verdict_pb2.OUTCOME_PASS, "b": verdict_pb2.OUTCOME_FAIL}, outcomes

    critic = runpy.run_path(str(EXAMPLE))["TerseCritic"]
    async with serve(judge_contract(critic())) as server:
        broken = [one for one in await conformance.run(CRITIC, server.target, timeout=20) if one.broken]
    assert not broken, broken

    fake = FakeJudge(criteria=["brief"])
    async with serve(fake.contract()) as server, open_channel(server.target) as channel:
        assert len([one async for one in JudgeServiceStub(channel).Judge(request)]) == 2
    assert fake.requests == [request]

    generation = FakeGeneration([{"verdict": "pass"}])
    async with serve(generation.contract()) as server, open_channel(server.target) as channel:
        asked = GenerateRequest(messages=[Message(role=MESSAGE_ROLE_USER, text="Is it brief?")])
        answer = await GenerationServiceStub(channel).Generate(asked)
    assert answer.completion.json == '{"verdict": "pass"}', answer

    try:
        async with serve_gateway():
            raise AssertionError("the gateway came with the wheel")
    except PlatformMissingError:
        pass


asyncio.run(main())
