"""Retries of single judges, over real gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from pydantic import ValidationError

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest, JudgeResponse
from dramaturg.client import DramaturgClient
from dramaturg.service.errors import ServiceError
from dramaturg.testing import FakeJudge, serve, serve_gateway
from gateway.judges.retries import MAX_TOKENS, JudgeRetries
from gateway.settings import JudgeEntry, RetryTable
from tests.support.gateway import agents, all_pass, criteria_of, evaluate_result, scripts_request


def error(code: grpc.StatusCode, retry_after: float | None = None) -> ServiceError:
    reason = error_reason_pb2.ERROR_REASON_UNSPECIFIED
    return ServiceError(code, reason, "no luck today", retry_after=retry_after)


def test_attempts_codes_and_what_the_judge_asks_for() -> None:
    retries = JudgeRetries(RetryTable(attempts=3, codes=("INTERNAL",)))
    assert retries.wait(1, error(grpc.StatusCode.UNAVAILABLE)) is None
    first = retries.wait(1, error(grpc.StatusCode.INTERNAL))
    assert first is not None
    assert 0 <= first <= 0.2
    assert retries.wait(2, error(grpc.StatusCode.INTERNAL, retry_after=3)) == 3
    assert retries.wait(3, error(grpc.StatusCode.INTERNAL)) is None
    assert JudgeRetries(None).wait(1, error(grpc.StatusCode.INTERNAL)) is None


def test_the_attempt_budget_ends_retries_until_answers_return() -> None:
    retries = JudgeRetries(RetryTable(attempts=10))
    waits = [retries.wait(1, error(grpc.StatusCode.UNAVAILABLE)) for _ in range(int(MAX_TOKENS))]
    assert sum(wait is not None for wait in waits) == 4
    for _ in range(100):
        retries.record_answer()
    assert retries.wait(1, error(grpc.StatusCode.UNAVAILABLE)) is not None


class Flaky(FakeJudge):
    """A critic whose first calls end with an error after the first candidate."""

    def __init__(self, failures: int) -> None:
        super().__init__(lambda request, candidate: all_pass("critic"), criteria=criteria_of("critic"))
        self.failures = failures

    async def Judge(self, request: JudgeRequest, context: Any) -> AsyncIterator[JudgeResponse]:
        async for response in super().Judge(request, context):
            yield response
            if self.failures:
                self.failures -= 1
                raise error(grpc.StatusCode.INTERNAL)


@pytest.mark.parametrize(
    ("retry", "calls", "outcomes"),
    [
        ({"attempts": 3, "codes": ["INTERNAL"]}, [["c0", "c1", "c2"], 2, 1], {"PASS"}),
        ({"attempts": 2, "codes": ["INTERNAL"]}, [["c0", "c1", "c2"], 2], {"PASS", "ABSTAIN"}),
        ({"attempts": 3}, [["c0", "c1", "c2"]], {"PASS", "ABSTAIN"}),
    ],
)
async def test_a_call_is_repeated_for_the_candidates_that_lack_an_answer(
    retry: dict[str, Any], calls: list[Any], outcomes: set[str]
) -> None:
    flaky = Flaky(2)
    async with AsyncExitStack() as stack:
        entries: list[dict[str, Any]] = []
        for fake in [fake for fake in agents() if fake.role != "critic"]:
            target = (await stack.enter_async_context(serve(fake.contract()))).target
            entries.append({"role": fake.role, "name": fake.name, "target": target})
        target = (await stack.enter_async_context(serve(flaky.contract()))).target
        entries.append({"role": "critic", "name": "flaky", "target": target, "retry": retry})
        gateway = await stack.enter_async_context(serve_gateway(judges=entries))
        client = await stack.enter_async_context(DramaturgClient(gateway.target))
        result = await evaluate_result(client, scripts_request(3, roles=["critic"]))
    asked = [[candidate.id for candidate in request.candidates] for request in flaky.requests]
    assert asked[0] == calls[0]
    assert [len(ids) for ids in asked[1:]] == calls[1:]
    found = {
        verdict_pb2.Outcome.Name(verdict.outcome).removeprefix("OUTCOME_")
        for candidate in result.candidates
        for verdict in candidate.verdicts
    }
    assert found == outcomes


def test_a_panel_has_no_retries_of_its_own() -> None:
    panel = {"role": "critic", "name": "p", "retry": {}, "panel": {"members": ["a", "b"]}}
    with pytest.raises(ValidationError, match="is a panel, which has no retry"):
        JudgeEntry.model_validate(panel)
