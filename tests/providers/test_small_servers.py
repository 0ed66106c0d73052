"""What a server of a small model on a slow machine does: each case is bounded, and the caller is told."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.service.errors import from_rpc_error
from tests.providers.scripted_server import Reply, message, scripted_server
from tests.providers.test_behaviours import delta, end, provider
from tests.support.generation import GOOD, generation_service, request
from tests.support.openai_server import Body

NEVER = 60.0
"""Seconds that no test waits."""


async def complete(
    script: Any, *, timeout: float = 20, json: bool = True, **settings: Any
) -> tuple[Any, int]:
    """The completion, or the error, of a request; and how many requests the server got."""
    async with (
        scripted_server(script) as server,
        generation_service(providers={"p": provider(server.base_url, **settings)}) as service,
    ):
        try:
            asked = request("Is it good?", json_format=json)
            answer: Any = (await service.generation.Generate(asked, timeout=timeout)).completion
        except grpc.aio.AioRpcError as error:
            answer = from_rpc_error(error)
        return answer, len(server.bodies)


async def test_a_prompt_beyond_the_context_is_refused_once_with_its_counts() -> None:
    refusal = {
        "code": 400,
        "message": "request (12030 tokens) exceeds the available context size (8192 tokens)",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 12030,
        "n_ctx": 8192,
    }
    error, posts = await complete(lambda _: Reply({"error": refusal}, 400))
    assert error.reason == reasons.ERROR_REASON_CONTEXT_LENGTH_EXCEEDED
    assert "12030" in error.message
    assert "8192" in error.message
    assert posts == 1


ENDLESS = {
    "JSON that is cut off": GOOD[:-2],
    "a word again and again": '{"reason": "' + "the pot of the pot of " * 2000,
    "entries again and again": '{"votes": [' + '{"role": 1, "vote": "They"}, ' * 2000,
    "white space": "{" + "\n " * 20_000,
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
async def test_an_answer_that_ends_at_the_cap_is_asked_for_once_more_and_told(text: str) -> None:
    completion, posts = await complete(lambda _: Reply(message(text, finish="length")))
    assert completion.status == pb.COMPLETION_STATUS_TRUNCATED
    assert not completion.HasField("json")
    assert posts == 2
    assert completion.usage.completion_token_count == 8, "both answers were paid for"


async def test_an_object_that_never_ends_is_cut_at_the_deadline() -> None:
    started = time.monotonic()
    error, posts = await complete(lambda _: Reply(message(GOOD), seconds=NEVER), timeout=1)
    assert error.reason in (reasons.ERROR_REASON_DEADLINE_EXCEEDED, reasons.ERROR_REASON_UNSPECIFIED)
    assert error.code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - started < NEVER / 4
    assert posts == 1, "a deadline that has passed buys no second answer"


async def test_a_stream_of_white_space_is_cut_at_the_deadline() -> None:
    pauses = [part for _ in range(1000) for part in (delta(content=" "), 0.05)]
    started = time.monotonic()
    error, posts = await complete(lambda _: Reply(events=pauses), timeout=1, stream=True)
    assert error.code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - started < NEVER / 4
    assert posts == 1


async def test_a_slow_first_token_within_the_idle_time_is_waited_for() -> None:
    events = [0.5, delta(content=GOOD), end()]
    completion, posts = await complete(lambda _: Reply(events=events), stream=True, stream_idle_seconds=10)
    assert (completion.status, posts) == (pb.COMPLETION_STATUS_OK, 1)
    completion, posts = await complete(lambda _: Reply(message(GOOD), seconds=0.5))
    assert (completion.status, posts) == (pb.COMPLETION_STATUS_OK, 1)


async def test_a_server_with_one_slot_answers_all_in_turn() -> None:
    running: list[Body] = []

    def script(body: Body) -> Reply:
        running.append(body)
        return Reply(message(GOOD), seconds=0.05)

    async with (
        scripted_server(script, slots=1) as server,
        generation_service(providers={"p": provider(server.base_url)}) as service,
    ):
        asked = [service.generation.Generate(request(f"Question {n}?"), timeout=60) for n in range(12)]
        answers = await asyncio.gather(*asked)
    assert {answer.completion.status for answer in answers} == {pb.COMPLETION_STATUS_OK}
    assert len(running) == 12, "a slow answer is not asked for again"
