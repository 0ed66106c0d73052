from __future__ import annotations

import grpc
import pytest

from dramaturg import conformance
from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeCandidate, JudgeRequest, JudgeResponse
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.verdicts import failed
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError
from dramaturg.testing import FakeJudge, serve
from dramaturg.testing.servers import Judgement


def request(*candidates: str, criteria: tuple[str, ...] = ()) -> JudgeRequest:
    made = JudgeRequest(task=Task(goal="Make tea"), criteria=[Criterion(id=one) for one in criteria])
    for text in candidates:
        made.candidates.add(id=text, text=text)
    return made


async def ask(judge: FakeJudge, asked: JudgeRequest) -> dict[str, JudgeResponse]:
    async with serve(judge.contract()) as server, open_channel(server.target) as channel:
        return {one.candidate_id: one async for one in JudgeServiceStub(channel).Judge(asked)}


async def test_every_criterion_passes_by_default() -> None:
    judge = FakeJudge()
    own = await ask(judge, request("a", "b"))
    named = await ask(judge, request("a", criteria=("brief",)))
    assert {one: [v.criterion for v in own[one].assessment.verdicts] for one in own} == {
        "a": ["fluent"],
        "b": ["fluent"],
    }
    assert named["a"].assessment.verdicts[0].criterion == "brief"
    assert named["a"].assessment.verdicts[0].outcome == verdict_pb2.OUTCOME_PASS
    assert named["a"].assessment.provenance.name == "fake-judge"
    assert judge.requests == [request("a", "b"), request("a", criteria=("brief",))]


async def test_each_candidate_is_judged_or_fails_alone() -> None:
    async def judged(asked: JudgeRequest, candidate: JudgeCandidate) -> Judgement:
        if candidate.id == "b":
            raise ServiceError(grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_OVERLOADED, "busy")
        return Assessment(verdicts=[failed("fluent")])

    responses = await ask(FakeJudge(judged, delay=0.01), request("a", "b"))
    assert responses["a"].assessment.verdicts[0].outcome == verdict_pb2.OUTCOME_FAIL
    assert responses["b"].error.reason == error_reason_pb2.ERROR_REASON_OVERLOADED


@pytest.mark.parametrize(
    "judge", [FakeJudge(), FakeJudge(criteria=ABSEVAL), FakeJudge(lambda *_: [failed("a")], criteria=["a"])]
)
async def test_it_keeps_its_contract(judge: FakeJudge) -> None:
    async with serve(judge.contract()) as server:
        outcomes = await conformance.run(conformance.checked_role("judge"), server.target, timeout=20)
    assert len(outcomes) > 20
    assert [(one.check.name, one.failure) for one in outcomes if one.broken] == []


async def test_it_says_what_it_is() -> None:
    judge = FakeJudge(name="mine", version="2.0.0", criteria=["fluent"], capabilities=["uses-pool"])
    async with serve(judge.contract()) as server, open_channel(server.target) as channel:
        found = (await IdentityServiceStub(channel).GetIdentity(GetIdentityRequest())).identity
    assert (found.name, found.version, [*found.criteria]) == ("mine", "2.0.0", ["fluent"])
    assert [*found.capabilities] == ["uses-pool"]
