from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeResponse
from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Assessment, Verdict
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.roles import CRITIC
from dramaturg.results.gold_answers import missing_reason
from dramaturg.service.errors import ServiceError
from dramaturg.testing import until
from gateway.evaluations.judge_answers import CORRECTIONS
from tests.support.gateway import (
    Fake,
    agents,
    evaluate,
    evaluate_result,
    gateway_client,
    scripts_request,
    steps,
)

UNREACHABLE = "127.0.0.1:1"


class Hanging:
    """Never answers; knows who waits for it and who gave up."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0

    async def __call__(self, request: Any) -> Any:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def reasons(result: ScriptsResult, *criteria: str) -> set[str]:
    return {
        AbstainReason.Name(verdict.abstain_reason).removeprefix("ABSTAIN_REASON_")
        for candidate in result.candidates
        for verdict in candidate.verdicts
        if verdict.criterion in criteria
    }


def passes(result: ScriptsResult) -> set[str]:
    return {
        verdict.criterion
        for candidate in result.candidates
        for verdict in candidate.verdicts
        if verdict.outcome == verdict_pb2.OUTCOME_PASS
    }


def rationale(result: ScriptsResult, criterion: str) -> str:
    return next(one.rationale for one in result.candidates[0].verdicts if one.criterion == criterion)


async def test_a_judge_that_is_down_makes_its_criteria_abstain_and_the_rest_stands() -> None:
    async with gateway_client(*agents(Fake("execute", target=UNREACHABLE))) as client:
        result = await evaluate_result(client, scripts_request(2))
    lost = ("satisfies_constraints", "completes_goal", "order_correct")
    assert reasons(result, *lost) == {"JUDGE_UNAVAILABLE"}
    assert passes(result) == set(ABSEVAL) - set(lost)
    assert rationale(result, "order_correct").startswith("The judge 'fake' failed with UNAVAILABLE")


async def test_a_judge_that_hangs_times_out_and_holds_up_no_other() -> None:
    hanging = Hanging()
    fakes = agents(Fake("critic", hanging))
    async with gateway_client(*fakes, judge_timeout_seconds=0.3, calls_per_judge=2) as client:
        result = await evaluate_result(client, scripts_request(4))
        assert reasons(result, *CRITIC.criteria) == {"TIMED_OUT"}
        assert passes(result) == set(ABSEVAL) - set(CRITIC.criteria)
        await until(lambda: hanging.cancelled == 4)


async def test_a_judge_whose_process_stands_still_times_out_and_holds_up_no_other() -> None:
    """It takes the connection, and says nothing at all."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with (
        server,
        gateway_client(*agents(Fake("critic", target=target)), judge_timeout_seconds=1) as client,
    ):
        result = await evaluate_result(client, scripts_request(1))
    assert reasons(result, *CRITIC.criteria) == {"TIMED_OUT"}
    assert passes(result) == set(ABSEVAL) - set(CRITIC.criteria)


async def test_the_result_comes_before_the_callers_deadline() -> None:
    started = time.monotonic()
    async with gateway_client(*agents(Fake("critic", Hanging()), Fake("synthesize", Hanging()))) as client:
        result = await evaluate_result(client, scripts_request(2), timeout=2)
    assert time.monotonic() - started < 5
    assert reasons(result, *CRITIC.criteria) == {"TIMED_OUT"}
    assert passes(result) == set(ABSEVAL) - set(CRITIC.criteria)
    assert result.gold_answer.failure == "The judge 'fake' did not answer in time."
    assert result.gold_answer.failure_reason == verdict_pb2.ABSTAIN_REASON_TIMED_OUT


async def test_cancelling_the_call_cancels_the_judges() -> None:
    judges = {role: Hanging() for role in ("synthesize", "execute", "commonsense")}
    fakes = [Fake(role, judge) for role, judge in judges.items()]
    async with gateway_client(*agents(*fakes)) as client:
        stream = client.evaluate_scripts(scripts_request(2), timeout=60)
        assert (await anext(stream)).HasField("accepted")
        pending = asyncio.ensure_future(anext(stream))
        await until(lambda: [judge.begun for judge in judges.values()] == [1, 2, 2])
        pending.cancel()
        await asyncio.wait([pending])
        await until(lambda: [judge.cancelled for judge in judges.values()] == [1, 2, 2])


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (
            grpc.StatusCode.UNAVAILABLE,
            error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE,
            "PROVIDER_UNAVAILABLE",
        ),
        (grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_INTERNAL, "JUDGE_UNAVAILABLE"),
        (grpc.StatusCode.UNIMPLEMENTED, error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED, "CALL_REJECTED"),
        (grpc.StatusCode.CANCELLED, error_reason_pb2.ERROR_REASON_UNSPECIFIED, "JUDGE_UNAVAILABLE"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED, "TIMED_OUT"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED, "OVER_BUDGET"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, error_reason_pb2.ERROR_REASON_TOO_LARGE, "NOT_SUPPORTED"),
        (grpc.StatusCode.INVALID_ARGUMENT, error_reason_pb2.ERROR_REASON_CRITERION_UNKNOWN, "NOT_SUPPORTED"),
        (grpc.StatusCode.PERMISSION_DENIED, error_reason_pb2.ERROR_REASON_UNSPECIFIED, "JUDGE_UNAVAILABLE"),
    ],
)
async def test_a_failure_has_its_reason(code: grpc.StatusCode, reason: Any, expected: str) -> None:
    async def fail(request: Any) -> Any:
        raise ServiceError(code, reason, "no luck today")

    async with gateway_client(*agents(Fake("commonsense", fail))) as client:
        result = await evaluate_result(client, scripts_request(1))
    assert reasons(result, "executable") == {expected}
    assert len(passes(result)) == 6


async def test_a_judge_that_raises_is_unavailable() -> None:
    async def fail(request: Any) -> Any:
        raise ZeroDivisionError

    async with gateway_client(*agents(Fake("commonsense", fail))) as client:
        result = await evaluate_result(client, scripts_request(1))
    assert reasons(result, "executable") == {"JUDGE_UNAVAILABLE"}


async def test_a_judge_of_another_contract_is_unavailable_and_says_which_one_was_wanted() -> None:
    async with gateway_client(*agents(Fake("commonsense", serves="synthesize"))) as client:
        result = await evaluate_result(client, scripts_request(1))
    assert reasons(result, "executable") == {"CALL_REJECTED"}
    assert rationale(result, "executable") == (
        "The judge 'fake' does not implement dramaturg.api.judging.v1.JudgeService."
    )


async def test_without_a_gold_answer_the_critic_is_asked_all_the_same() -> None:
    async def fail(request: Any) -> Any:
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION, error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN, "no model"
        )

    async with gateway_client(*agents(Fake("synthesize", fail))) as client:
        result = await evaluate_result(client, scripts_request(1))
    assert passes(result) == set(ABSEVAL)
    assert not result.gold_answer.script.steps
    assert result.gold_answer.failure == (
        "The judge 'fake' failed with FAILED_PRECONDITION (ERROR_REASON_MODEL_UNKNOWN): no model."
    )


@pytest.mark.parametrize(
    ("answer", "failure", "reason"),
    [
        (SynthesizeResponse(), "The synthesizer answered without steps.", "EMPTY"),
        (SynthesizeResponse(script=steps(" ")), "The synthesizer answered without steps.", "EMPTY"),
        (SynthesizeResponse(failure="refused"), "refused", "UNSPECIFIED"),
        (SynthesizeResponse(failure="refused", script=steps("x")), "refused", "UNSPECIFIED"),
        (
            SynthesizeResponse(failure="refused", failure_reason=verdict_pb2.ABSTAIN_REASON_REFUSED),
            "refused",
            "REFUSED",
        ),
    ],
)
async def test_a_gold_answer_without_steps_says_why(
    answer: SynthesizeResponse, failure: str, reason: str
) -> None:
    async def synthesize(request: Any) -> SynthesizeResponse:
        return answer

    async with gateway_client(*agents(Fake("synthesize", synthesize))) as client:
        result = await evaluate_result(client, scripts_request(1))
    assert result.gold_answer.failure == failure
    assert missing_reason(result) == reason
    assert not result.gold_answer.script.steps
    assert passes(result) == set(ABSEVAL)


async def test_a_malformed_assessment_is_corrected_and_says_so() -> None:
    async def judge(request: Any) -> Assessment:
        nan = float("nan")
        return Assessment(
            verdicts=[
                Verdict(
                    criterion="no_missing_steps", outcome=verdict_pb2.OUTCOME_PASS, score=7, confidence=nan
                ),
                Verdict(criterion="no_redundant_steps", outcome=verdict_pb2.OUTCOME_PASS),
                Verdict(criterion="no_redundant_steps", outcome=verdict_pb2.OUTCOME_FAIL),
                Verdict(criterion="beauty", outcome=verdict_pb2.OUTCOME_PASS),
            ]
        )

    async with gateway_client(*agents(Fake("critic", judge))) as client:
        result = await evaluate_result(client, scripts_request(1))
    candidate = result.candidates[0]
    assert tuple(verdict.criterion for verdict in candidate.verdicts) == ABSEVAL
    assert reasons(result, "no_redundant_steps") == {"CONTRADICTORY"}
    assert reasons(result, "no_duplicate_steps") == {"UNPARSABLE"}
    assert not candidate.verdicts[0].HasField("score")
    assert not candidate.verdicts[0].HasField("confidence")
    corrections = candidate.assessments[0].assessment.provenance.parameters[CORRECTIONS]
    assert "score 7.0" in corrections
    assert "'beauty'" in corrections


@asynccontextmanager
async def serve_garbage() -> AsyncIterator[str]:
    """A server of every agent's contract that answers with bytes that are no message."""

    class Garbage(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> Any:
            if not str(details.method).startswith(("/dramaturg.api.agents.", "/dramaturg.api.judging.")):
                return None

            async def answer(request: bytes, context: object) -> bytes:
                return b"\xff\xff\xff\xff"

            async def answers(request: bytes, context: object) -> AsyncIterator[bytes]:
                yield b"\xff\xff\xff\xff"

            if str(details.method).endswith("/Judge"):
                return grpc.unary_stream_rpc_method_handler(answers)
            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Garbage(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def test_bytes_that_are_no_answer_are_none() -> None:
    async with serve_garbage() as target:
        fakes = agents(Fake("critic", target=target), Fake("synthesize", target=target))
        async with gateway_client(*fakes) as client:
            result = await evaluate_result(client, scripts_request(1))
    assert reasons(result, *CRITIC.criteria) == {"JUDGE_UNAVAILABLE"}
    assert result.gold_answer.failure == "The synthesizer answered without steps."
    assert len(passes(result)) == 4


async def test_all_judges_down_is_a_result_of_abstentions() -> None:
    fakes = [Fake(role, target=UNREACHABLE) for role in ("synthesize", "critic", "execute", "commonsense")]
    async with gateway_client(*fakes) as client:
        events = await evaluate(client, scripts_request(2))
    result = events[-1].result
    assert reasons(result, *ABSEVAL) == {"JUDGE_UNAVAILABLE"}
    assert sum(len(candidate.verdicts) for candidate in result.candidates) == 14
    assert result.gold_answer.failure
