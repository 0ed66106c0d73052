"""What goes wrong at a provider: what is retried, for how long, and what the caller hears."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.service.errors import ServiceError, from_rpc_error
from tests.support.generation import GOOD, WITHOUT_WAITS, Service, endpoint, generation_service
from tests.support.openai_server import FAILURES, TROUBLES, Answer, Body, Misbehaviour, OpenAIServer


async def failure(service: Service, **fields: Any) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await service.generate(**fields)
    return from_rpc_error(raised.value)


def retries(**fields: Any) -> dict[str, Any]:
    return WITHOUT_WAITS | fields


@pytest.mark.parametrize("trouble", sorted(FAILURES))
async def test_a_failure_that_passes_is_retried_and_counted(trouble: str) -> None:
    misbehaviour = Misbehaviour({trouble: 1.0}, first_only=True)
    async with OpenAIServer(lambda _: GOOD, misbehaviour) as server:
        impatient = endpoint(server, retries=retries(attempt_timeout_seconds=0.2))
        async with generation_service(providers={"p": impatient}) as service:
            completion = await service.generate()
            again = await service.generate()
        assert server.calls.total() == 2
        assert server.troubles == {trouble: 1}
        assert server.answered.total() == 1
    assert completion.json == GOOD
    assert completion.usage.retried_call_count == 1
    assert completion.usage.provider_call_count == 1
    assert again.usage.retried_call_count == 0


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_trouble_at_the_first_call_is_overcome_or_named(trouble: str) -> None:
    misbehaviour = Misbehaviour({trouble: 1.0}, first_only=True)
    async with OpenAIServer(lambda _: GOOD, misbehaviour) as server:
        impatient = endpoint(server, retries=retries(attempt_timeout_seconds=0.2))
        async with generation_service(providers={"p": impatient}) as service:
            completion = await service.generate()
    # A refusal is not asked again, and a doubled cap is another request, which meets the trouble anew.
    lost = {"refusal": pb.COMPLETION_STATUS_REFUSED, "length": pb.COMPLETION_STATUS_TRUNCATED}
    assert completion.status == lost.get(trouble, pb.COMPLETION_STATUS_OK)
    assert completion.json == ("" if trouble in lost else GOOD)


async def test_a_misbehaving_endpoint_gives_the_same_answers_or_says_why_not() -> None:
    def respond(body: Body) -> dict[str, Any]:
        question = body["messages"][0]["content"]
        return {"rationale": f"about {question}", "met": len(question) % 2 == 0}

    questions = [f"question {number}" for number in range(200)]
    misbehaviour = Misbehaviour.every_kind(0.04, seed=7)
    async with OpenAIServer(respond, misbehaviour) as bad, OpenAIServer(respond) as good:
        # Only what never ends takes so long: an answer that is late on a busy machine would be bought twice.
        impatient = {"retries": retries(attempt_timeout_seconds=12)}
        providers = {"bad": endpoint(bad, **impatient), "good": endpoint(good, **impatient)}
        async with generation_service(providers=providers) as service:

            async def ask(model: str) -> list[pb.Completion]:
                # Far above the time that the troubles take: what ends must not depend on the machine.
                asked = (service.generate(question, model=model, timeout=100) for question in questions)
                return await asyncio.gather(*asked)

            first, reference = await ask("bad/m"), await ask("good/m")
            again = await ask("bad/m")
        assert set(bad.troubles) == set(TROUBLES)
        # Nothing is bought again after success. Counted on the server, by the request's content.
        assert max(bad.answered.values()) == 1
    for round_ in (first, again):
        for completion, expected in zip(round_, reference, strict=True):
            if completion.status == pb.COMPLETION_STATUS_OK:
                assert completion.json == expected.json
            else:
                assert completion.status != pb.COMPLETION_STATUS_UNSPECIFIED
                assert not completion.HasField("json")
    saved = [completion.status == pb.COMPLETION_STATUS_OK for completion in first]
    assert sum(saved) > 180
    # What failed was not kept: it is bought again and most of it succeeds the second time.
    for completion, was_saved in zip(again, saved, strict=True):
        assert completion.calls[0].cached is was_saved
    refusals = sum(completion.status == pb.COMPLETION_STATUS_REFUSED for completion in first)
    assert refusals > 0


@pytest.mark.parametrize(
    ("status", "error_code", "code", "reason"),
    [
        (400, None, grpc.StatusCode.FAILED_PRECONDITION, reasons.ERROR_REASON_PROVIDER_REJECTED),
        (404, None, grpc.StatusCode.FAILED_PRECONDITION, reasons.ERROR_REASON_PROVIDER_REJECTED),
        (413, None, grpc.StatusCode.FAILED_PRECONDITION, reasons.ERROR_REASON_CONTEXT_LENGTH_EXCEEDED),
        (422, None, grpc.StatusCode.FAILED_PRECONDITION, reasons.ERROR_REASON_PROVIDER_REJECTED),
        (
            429,
            "insufficient_quota",
            grpc.StatusCode.FAILED_PRECONDITION,
            reasons.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED,
        ),
        (401, None, grpc.StatusCode.FAILED_PRECONDITION, reasons.ERROR_REASON_PROVIDER_UNAUTHENTICATED),
        (403, None, grpc.StatusCode.FAILED_PRECONDITION, reasons.ERROR_REASON_PROVIDER_UNAUTHENTICATED),
        (404, "model_not_found", grpc.StatusCode.INVALID_ARGUMENT, reasons.ERROR_REASON_MODEL_UNKNOWN),
    ],
)
async def test_what_never_passes_is_not_retried_nor_kept(
    status: int, error_code: str | None, code: grpc.StatusCode, reason: int
) -> None:
    answer = Answer("that will not do", status=status, error_code=error_code)
    async with OpenAIServer(lambda _: answer) as server, generation_service(server) as service:
        error = await failure(service)
        assert server.calls.total() == 1
        await failure(service)
        assert server.calls.total() == 2
    assert error.code is code
    assert error.reason == reason
    assert error.metadata["provider"] == "p0"
    assert error.metadata["status"] == str(status)
    assert "that will not do" in error.message


@pytest.mark.parametrize("trouble", ["server_error", "reset", "garbage_body", "truncated_body"])
async def test_a_provider_that_stays_broken_is_unavailable(trouble: str) -> None:
    async with OpenAIServer(lambda _: GOOD, Misbehaviour({trouble: 1.0})) as server:
        providers = {"p": endpoint(server, retries=retries(transient_attempts=3))}
        async with generation_service(providers=providers) as service:
            error = await failure(service)
        assert server.calls.total() == 3
    assert error.code is grpc.StatusCode.UNAVAILABLE
    assert error.reason == reasons.ERROR_REASON_PROVIDER_UNAVAILABLE


async def test_a_provider_that_is_not_there_is_unavailable() -> None:
    async with OpenAIServer() as server, generation_service(server) as service:
        await server.stop()
        error = await failure(service)
    assert error.reason == reasons.ERROR_REASON_PROVIDER_UNAVAILABLE
    assert "cannot be reached" in error.message


def within(seconds: float) -> Callable[[float], bool]:
    return lambda begun: time.monotonic() - begun < seconds


async def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    misbehaviour = Misbehaviour({"rate_limit": 1.0}, retry_after="3600")
    async with OpenAIServer(lambda _: GOOD, misbehaviour) as server, generation_service(server) as service:
        begun = time.monotonic()
        error = await failure(service, timeout=30)
        assert within(5)(begun)
        assert server.calls.total() == 1
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.reason == reasons.ERROR_REASON_PROVIDER_RATE_LIMITED
    assert error.retry_after == 3600


async def test_a_wait_that_the_provider_asks_for_is_kept_to() -> None:
    misbehaviour = Misbehaviour({"rate_limit": 1.0}, retry_after="0.3", first_only=True)
    async with OpenAIServer(lambda _: GOOD, misbehaviour) as server, generation_service(server) as service:
        begun = time.monotonic()
        assert (await service.generate()).json == GOOD
        assert time.monotonic() - begun >= 0.3


async def test_a_rate_limit_is_waited_out_until_the_deadline() -> None:
    async with OpenAIServer(lambda _: GOOD, Misbehaviour({"rate_limit": 1.0})) as server:
        patient = {"first_wait_seconds": 0.02, "longest_wait_seconds": 0.05, "transient_attempts": 1}
        providers = {"p": endpoint(server, retries=patient)}
        # The reserve leaves a busy machine time to report the failure before the client's own deadline.
        async with generation_service(providers=providers, deadline_reserve_seconds=1.0) as service:
            error = await failure(service, timeout=1.8)
        assert server.calls.total() > 5
    assert error.reason == reasons.ERROR_REASON_PROVIDER_RATE_LIMITED


async def test_a_hang_never_outlives_the_deadline() -> None:
    async with OpenAIServer(lambda _: GOOD, Misbehaviour({"hang": 1.0})) as server:
        async with generation_service(server) as service:
            begun = time.monotonic()
            error = await failure(service, timeout=0.5)
            assert within(3)(begun)
        assert server.calls.total() == 1
    assert error.code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_cancelled_request_cuts_its_call_and_frees_its_slot() -> None:
    reached = asyncio.Event()

    async def respond(body: Body) -> str:
        if body["messages"][0]["content"] == "slow":
            reached.set()
            await asyncio.Event().wait()
        return GOOD

    async with OpenAIServer(respond) as server:
        narrow = endpoint(server, concurrency={"start": 1, "maximum": 1})
        async with generation_service(providers={"p": narrow}) as service:
            slow = asyncio.create_task(service.generate("slow"))
            await reached.wait()
            slow.cancel()
            assert (await service.generate("quick", timeout=10)).json == GOOD


async def test_concurrency_grows_by_what_the_provider_bears() -> None:
    async with OpenAIServer(lambda _: GOOD, latency=0.02, concurrency=12) as server:
        adaptive = endpoint(server, concurrency={"start": 2, "maximum": 64})
        adaptive["retries"] = {"first_wait_seconds": 0.02, "longest_wait_seconds": 0.1}
        async with generation_service(providers={"p": adaptive}) as service:
            completions = await asyncio.gather(*(service.generate(f"q{i}") for i in range(300)))
        assert all(completion.json == GOOD for completion in completions)
        assert 8 <= server.peak <= 40
        assert server.troubles["rate_limit"] < 150
