"""Which calls may have been paid for in vain, as the service tells it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.service.errors import from_rpc_error
from dramaturg.testing import until
from services.generation.ledger import Ledger, LedgerUnavailableError
from tests.support.generation import GOOD, Service, endpoint, generation_service
from tests.support.openai_server import Answer, Body, Misbehaviour, OpenAIServer


async def status(service: Service) -> pb.LedgerStatus:
    return (await service.generation.GetLedgerStatus(pb.GetLedgerStatusRequest())).status


async def test_an_answer_that_is_kept_leaves_no_note() -> None:
    async with OpenAIServer(lambda _: GOOD) as server, generation_service(server) as service:
        await service.generate()
        told = await status(service)
    assert told.kind == pb.LEDGER_KIND_MEMORY
    assert (told.completion_count, told.process_count, told.call_under_way_count) == (1, 1, 0)
    assert (told.possibly_paid_twice_count, list(told.lost_calls)) == (0, [])
    assert told.size_bytes > 0


@pytest.mark.parametrize(
    ("reply", "fields"),
    [
        (Answer(refusal="no"), {}),
        ("no JSON", {}),
        (GOOD, {"cache_policy": pb.CACHE_POLICY_BYPASS}),
        (Answer("wrong", status=400), {}),
        (Answer("broken", status=500), {}),
    ],
)
async def test_what_is_not_meant_to_be_kept_leaves_no_note_either(
    reply: str | Answer, fields: dict[str, Any]
) -> None:
    async with OpenAIServer(lambda _: reply) as server, generation_service(server) as service:
        try:
            await service.generate(**fields)
        except grpc.aio.AioRpcError:
            assert isinstance(reply, Answer)
        told = await status(service)
    assert (told.completion_count, told.possibly_paid_twice_count, told.call_under_way_count) == (0, 0, 0)


UNUSABLE: list[str | Answer] = [
    Answer(refusal="no"),
    Answer(GOOD[:20], finish_reason="length"),
    "no JSON",
    Answer("half", finish_reason="content_filter"),
]


@pytest.mark.parametrize("reply", UNUSABLE)
@pytest.mark.parametrize("last", ["the same", GOOD])
async def test_an_answer_of_no_use_that_is_bought_again_is_counted(
    reply: str | Answer, last: str, tmp_path: Path
) -> None:
    ledger = str(tmp_path / "ledger.sqlite3")
    async with OpenAIServer(lambda _: reply) as server:
        async with generation_service(server, ledger=ledger) as service:
            first = await service.generate()
            assert (await status(service)).possibly_paid_twice_count == 0
        if last == GOOD:
            server.responder = lambda _: GOOD
        # As after a crash of the service, or of the caller before it kept the result.
        async with generation_service(server, ledger=ledger) as service:
            again = await service.generate()
            told = await status(service)
    fingerprints = {call.fingerprint for call in again.calls}
    twice = sorted(call.fingerprint for call in first.calls if call.fingerprint in fingerprints)
    assert sum(count - 1 for count in server.calls.values()) == len(twice) > 0
    assert sorted(call.fingerprint for call in told.lost_calls) == twice
    assert all(call.answered and not call.abandoned for call in told.lost_calls)
    counts = (told.possibly_paid_twice_count, told.bought_again_call_count, told.abandoned_call_count)
    assert counts == (len(twice), len(twice), 0)


async def test_the_request_for_a_better_answer_is_counted_if_it_is_bought_again() -> None:
    replies = iter(["no JSON", "no JSON either", "no JSON", GOOD])
    async with OpenAIServer(lambda _: next(replies)) as server, generation_service(server) as service:
        first = await service.generate()
        again = await service.generate()
        told = await status(service)
    assert again.json == GOOD
    assert told.completion_count == 1
    assert [call.fingerprint for call in first.calls] == [call.fingerprint for call in again.calls]
    assert {call.fingerprint for call in told.lost_calls} == {call.fingerprint for call in first.calls}
    assert told.bought_again_call_count == 2


async def test_a_call_under_way_is_counted_and_one_that_its_caller_left_may_be_paid_twice() -> None:
    go_on = asyncio.Event()

    async def respond(_: Body) -> str:
        await go_on.wait()
        return GOOD

    async with OpenAIServer(respond) as server, generation_service(server) as service:
        asking = asyncio.create_task(service.generate())
        await until(lambda: server.in_flight == 1)
        assert (await status(service)).call_under_way_count == 1
        asking.cancel()
        while (told := await status(service)).call_under_way_count:  # noqa: ASYNC110 - the service does not tell by itself
            await asyncio.sleep(0.01)
        go_on.set()
    assert (told.possibly_paid_twice_count, told.abandoned_call_count) == (1, 1)
    (lost,) = told.lost_calls
    assert lost.abandoned
    assert len(lost.fingerprint) == 64
    assert lost.send_time.seconds > 1_700_000_000


@pytest.mark.parametrize("trouble", ["hang", "reset", "truncated_body"])
async def test_an_answer_that_was_lost_on_its_way_is_asked_for_again_and_counted(trouble: str) -> None:
    misbehaviour = Misbehaviour({trouble: 1.0}, first_only=True)
    async with OpenAIServer(lambda _: GOOD, misbehaviour) as server:
        retries = {"first_wait_seconds": 0.0, "attempt_timeout_seconds": 0.3}
        async with generation_service(providers={"p": endpoint(server, retries=retries)}) as service:
            completion = await service.generate()
            told = await status(service)
    assert completion.json == GOOD
    assert (told.completion_count, told.possibly_paid_twice_count, told.abandoned_call_count) == (1, 1, 1)


async def test_an_endpoint_that_is_not_there_was_not_paid() -> None:
    async with OpenAIServer() as server:
        pass
    async with generation_service(server) as service:
        with pytest.raises(grpc.aio.AioRpcError):
            await service.generate()
        assert (await status(service)).possibly_paid_twice_count == 0


@pytest.mark.parametrize("failing", [401, 500])
async def test_a_first_answer_whose_remedy_fails_is_returned_with_its_cost(failing: int) -> None:
    replies = iter([Answer("no JSON"), *[Answer("broken", status=failing)] * 10])
    async with OpenAIServer(lambda _: next(replies)) as server, generation_service(server) as service:
        completion = await service.generate()
        told = await status(service)
    assert completion.status == pb.COMPLETION_STATUS_UNPARSABLE
    assert completion.usage.provider_call_count == completion.usage.unused_completion_count == 1
    assert completion.usage.prompt_token_count > 0
    assert (told.possibly_paid_twice_count, told.abandoned_call_count) == (0, 0)


async def test_a_store_that_does_not_answer_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise LedgerUnavailableError("the ledger does not answer")

    async with OpenAIServer() as server, generation_service(server) as service:
        monkeypatch.setattr(Ledger, "get", away)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await service.generate()
        assert server.calls.total() == 0, "it might have been bought before"
    error = from_rpc_error(raised.value)
    assert (error.code, error.reason_name) == (
        grpc.StatusCode.UNAVAILABLE,
        "ERROR_REASON_STORE_UNAVAILABLE",
    )
