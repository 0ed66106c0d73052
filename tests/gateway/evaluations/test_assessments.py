"""Judges of several candidates over real gRPC: streams that break, repeat themselves or leave things out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Assessment
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1 import judge_service_pb2_grpc
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest, JudgeResponse
from dramaturg.judge import roles
from dramaturg.judge.contracts import JUDGE_SERVICE
from dramaturg.judge.protocols import USES_POOL
from dramaturg.judge.streams import MAX_ATTEMPTS
from dramaturg.judge.verdicts import failed, finding, passed
from dramaturg.service.contract import Contract
from dramaturg.testing import serve
from gateway.evaluations import assessments
from tests.support.gateway import Fake, agents, evaluate, evaluate_result, gateway_client, scripts_request

Respond = Callable[[int, JudgeRequest], AsyncIterator[JudgeResponse]]


class Streamer(judge_service_pb2_grpc.JudgeServiceServicer):
    """A critic that streams what a function says, by the number of the call; None breaks the stream."""

    def __init__(self, respond: Callable[[int, JudgeRequest], AsyncIterator[JudgeResponse | None]]) -> None:
        self._respond = respond
        self.requests: list[JudgeRequest] = []

    async def Judge(self, request: JudgeRequest, context: Any) -> AsyncIterator[JudgeResponse]:
        self.requests.append(request)
        async for response in self._respond(len(self.requests), request):
            if response is None:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
            else:
                yield response

    def contract(self, *capabilities: str) -> Contract:
        identity = Identity(
            name="streamer",
            version="1.0.0",
            contract=roles.JUDGE_CONTRACT,
            criteria=roles.CRITIC.criteria,
            capabilities=capabilities,
        )
        add = judge_service_pb2_grpc.add_JudgeServiceServicer_to_server
        return Contract(JUDGE_SERVICE, add, self, identity)

    @property
    def asked(self) -> list[list[str]]:
        return [[one.id for one in request.candidates] for request in self.requests]


def good(candidate_id: str) -> JudgeResponse:
    verdicts = [passed(criterion) for criterion in roles.CRITIC.criteria]
    return JudgeResponse(candidate_id=candidate_id, assessment=Assessment(verdicts=verdicts))


@asynccontextmanager
async def client_of(streamer: Streamer, *capabilities: str, **settings: Any) -> AsyncIterator[Any]:
    async with (
        serve(streamer.contract(*capabilities)) as server,
        gateway_client(*agents(Fake("critic", target=server.target)), **settings) as client,
    ):
        yield client


def critic_reasons(result: ScriptsResult) -> list[str]:
    """By candidate: why the critic abstained from its first criterion, or "PASS"."""
    return [
        AbstainReason.Name(one.verdicts[0].abstain_reason).removeprefix("ABSTAIN_REASON_")
        if one.verdicts[0].abstain_reason
        else "PASS"
        for one in result.candidates
    ]


async def test_each_assessment_is_emitted_as_it_comes_and_those_left_out_abstain() -> None:
    async def respond(call: int, request: JudgeRequest) -> AsyncIterator[JudgeResponse]:
        yield good("c2")
        yield good("c0")

    streamer = Streamer(respond)
    async with client_of(streamer) as client:
        events = await evaluate(client, scripts_request(3))
    emitted = [event.assessment for event in events if event.WhichOneof("event") == "assessment"]
    assert [one.candidate_id for one in emitted if one.role == "critic"] == ["c2", "c0", "c1"]
    result = events[-1].result
    assert [one.candidate_id for one in result.candidates] == ["c0", "c1", "c2"]
    assert critic_reasons(result) == ["PASS", "JUDGE_UNAVAILABLE", "PASS"]
    assert "did not answer for this candidate" in result.candidates[1].verdicts[0].rationale
    assert streamer.asked == [["c0", "c1", "c2"]]


async def test_repeated_unknown_and_empty_responses_touch_nothing_else() -> None:
    async def respond(call: int, request: JudgeRequest) -> AsyncIterator[JudgeResponse]:
        yield good("c0")
        yield JudgeResponse(candidate_id="c0")
        yield good("stranger")
        yield JudgeResponse(candidate_id="c1")
        yield good("c2")

    async with client_of(Streamer(respond)) as client:
        events = await evaluate(client, scripts_request(3))
    assert critic_reasons(events[-1].result) == ["PASS", "UNPARSABLE", "PASS"]
    assert sum(event.WhichOneof("event") == "assessment" for event in events) == 9


@pytest.mark.parametrize("capabilities", [(), (USES_POOL,)])
async def test_what_a_broken_stream_lacks_is_asked_for_again(capabilities: Sequence[str]) -> None:
    async def respond(call: int, request: JudgeRequest) -> AsyncIterator[JudgeResponse | None]:
        for index, one in enumerate(request.candidates):
            if call == 1 and index == 2:
                yield None
            yield good(one.id)

    streamer = Streamer(respond)
    async with client_of(streamer, *capabilities) as client:
        result = await evaluate_result(client, scripts_request(4))
    assert critic_reasons(result) == ["PASS"] * 4
    assert streamer.asked == [["c0", "c1", "c2", "c3"], ["c2", "c3"]]
    # Whoever compares with the other candidates still does.
    assert [one.id for one in streamer.requests[1].pool] == (["c0", "c1"] if capabilities else [])


async def test_a_stream_that_breaks_again_and_again_is_given_up() -> None:
    async def respond(call: int, request: JudgeRequest) -> AsyncIterator[JudgeResponse | None]:
        yield good(request.candidates[0].id)
        yield None

    streamer = Streamer(respond)
    async with client_of(streamer) as client:
        result = await evaluate_result(client, scripts_request(6))
    assert critic_reasons(result) == ["PASS"] * MAX_ATTEMPTS + ["JUDGE_UNAVAILABLE"] * 2
    assert len(streamer.requests) == MAX_ATTEMPTS


async def test_a_candidate_that_takes_too_long_times_out_alone() -> None:
    async def respond(call: int, request: JudgeRequest) -> AsyncIterator[JudgeResponse]:
        yield good("c1")
        yield good("c2")
        await asyncio.Event().wait()

    async with client_of(Streamer(respond), judge_timeout_seconds=0.5) as client:
        result = await evaluate_result(client, scripts_request(3))
    assert critic_reasons(result) == ["TIMED_OUT", "PASS", "PASS"]


async def test_each_answer_starts_the_wait_for_the_next_one() -> None:
    async def respond(call: int, request: JudgeRequest) -> AsyncIterator[JudgeResponse]:
        for one in request.candidates:
            await asyncio.sleep(0.4)
            yield good(one.id)

    async with client_of(Streamer(respond), judge_timeout_seconds=1) as client:
        result = await evaluate_result(client, scripts_request(4))
    assert critic_reasons(result) == ["PASS"] * 4


async def test_two_hundred_large_candidates_are_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assessments, "MAX_REQUEST_BYTES", 100_000)

    async def respond(call: int, request: JudgeRequest) -> AsyncIterator[JudgeResponse]:
        for one in reversed(request.candidates):
            yield good(one.id)

    request = scripts_request(200)
    for candidate in request.candidates:
        candidate.script.steps.add(text="x" * 4000)
    streamer = Streamer(respond)
    async with client_of(streamer) as client:
        result = await evaluate_result(client, request, timeout=60)
    assert critic_reasons(result) == ["PASS"] * 200
    assert len(streamer.requests) > 8
    assert max(one.ByteSize() for one in streamer.requests) < 101_000
    assert sorted(one for ids in streamer.asked for one in ids) == sorted(
        one.id for one in request.candidates
    )


async def test_findings_are_checked_against_the_gateways_steps() -> None:
    async def respond(call: int, request: JudgeRequest) -> AsyncIterator[JudgeResponse]:
        for one in request.candidates:
            found = finding(verdict_pb2.FINDING_KIND_MISSING_STEP, "Cold.", steps=[1, len(one.script.steps)])
            response = good(one.id)
            response.assessment.verdicts[0].CopyFrom(failed(roles.CRITIC.criteria[0], [found]))
            yield response

    streamer = Streamer(respond)
    request = scripts_request(1)
    request.candidates[0].text = "Here it is:\n1. Heat 2.5 cups.\n2. Wait.\n3. Pour.\nNote: enjoy."
    async with client_of(streamer) as client:
        result = await evaluate_result(client, request)
    (sent,) = streamer.requests[0].candidates
    assert [step.text for step in sent.script.steps] == ["Heat 2.5 cups.", "Wait.", "Pour."]
    assert (sent.reading, sent.text) == (verdict_pb2.READING_STEPS, request.candidates[0].text)
    assert (sent.preamble, sent.notes) == ("Here it is:", "Note: enjoy.")
    assert list(result.candidates[0].verdicts[0].findings[0].step_indices) == [1]


async def test_the_first_answer_of_a_new_version_has_that_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway knows the former one. A statement that is not that of the identity does not count."""
    monkeypatch.setattr("gateway.judges.identity.DOUBT_SECONDS", 0.0)
    stated = ["1.0.0", "2.0.0", "9.9.9"]

    async def respond(number: int, request: JudgeRequest) -> AsyncIterator[JudgeResponse | None]:
        version = stated[number - 1]
        if number == 2:
            contract.identity.version = version
        for one in request.candidates:
            response = good(one.id)
            response.assessment.provenance.name = "streamer"
            response.assessment.provenance.version = version
            yield response

    streamer = Streamer(respond)
    contract = streamer.contract()
    async with (
        serve(contract) as server,
        gateway_client(*agents(Fake("critic", target=server.target, default=True))) as client,
    ):
        seen = []
        for _ in stated:
            result = await evaluate_result(client, scripts_request(2))
            found = [
                one.assessment.provenance
                for candidate in result.candidates
                for one in candidate.assessments
                if one.role == "critic"
            ]
            seen.append([(one.version, "gateway-corrections" in one.parameters) for one in found])
    assert seen == [[("1.0.0", False)] * 2, [("2.0.0", False)] * 2, [("2.0.0", True)] * 2]
