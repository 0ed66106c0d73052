"""Questions asked together, of generation services that break off, are silent, or send what they must not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.api.generation.v1.generation_service_pb2 import (
    GenerateBatchRequest,
    GenerateBatchResponse,
    GenerateRequest,
)
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.judge import llm, streams
from dramaturg.judge.answers import StepsForm
from dramaturg.judge.excerpts import Excerpt
from dramaturg.judge.fence import fence
from dramaturg.judge.llm import Answer, Asker, Question
from dramaturg.judge.prompts import Prompt, PromptLibrary
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError
from dramaturg.testing import FakeGeneration, completion, serve

PATH = "/dramaturg.api.generation.v1.GenerationService/GenerateBatch"
Respond = Callable[[int, GenerateBatchRequest], AsyncIterator[bytes]]
Answers = dict[int, "Answer[tuple[str, ...]] | ServiceError"]


@pytest.fixture
def prompt(tmp_path: Path) -> Prompt:
    (tmp_path / "write.md").write_text("# user\nGoal: {{goal}}\n{{answer}}\n", encoding="utf-8")
    return PromptLibrary(tmp_path).load("write", fixed=["answer"], content=["goal"])


def goal_of(request: GenerateRequest) -> str:
    """The one line in the fence of a question."""
    return request.messages[-1].text.split("\n")[1]


def written(request: GenerateRequest) -> dict[str, Any]:
    return {"considerations": "None.", "steps": [goal_of(request)]}


def questions(prompt: Prompt, *goals: str) -> list[Question[tuple[str, ...]]]:
    return [
        Question(prompt, {"goal": Excerpt((fence("goal", goal, limit=10_000_000),))}, StepsForm())
        for goal in goals
    ]


async def ask_all(target: str, prompt: Prompt, *goals: str) -> Answers:
    """The answers by index; each index comes once."""
    found: Answers = {}
    async with open_channel(target) as channel:
        asker = Asker(GenerationServiceStub(channel))
        async with aclosing(asker.ask_all(questions(prompt, *goals), JudgeOptions())) as answers:
            async for index, answer in answers:
                assert index not in found
                found[index] = answer
    return found


def steps(answers: Answers) -> dict[int, str]:
    """The one step of each answer that has some."""
    return {
        index: answer.value[0]
        for index, answer in answers.items()
        if isinstance(answer, Answer) and answer.value is not None
    }


def reason(answer: Answer[tuple[str, ...]] | ServiceError) -> int:
    assert isinstance(answer, Answer)
    assert answer.abstention is not None
    return answer.abstention.reason


async def answered(target: str, prompt: Prompt, *goals: str) -> dict[int, str]:
    return steps(await ask_all(target, prompt, *goals))


@asynccontextmanager
async def responding(respond: Respond) -> AsyncIterator[tuple[str, list[GenerateBatchRequest]]]:
    """A generation service that sends bytes by the number of the call; yields its target and requests."""
    requests: list[GenerateBatchRequest] = []

    async def handle(request: bytes, context: Any) -> AsyncIterator[bytes]:
        requests.append(GenerateBatchRequest.FromString(request))
        async for response in respond(len(requests), requests[-1]):
            if response == b"lost":
                await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
            yield response

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> Any:
            return grpc.unary_stream_rpc_method_handler(handle) if details.method == PATH else None

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", requests
    finally:
        await server.stop(0)


def good(index: int, request: GenerateBatchRequest) -> bytes:
    return GenerateBatchResponse(
        index=index, completion=completion(written(request.requests[index]))
    ).SerializeToString()


async def test_several_questions_are_one_call_and_one_is_a_call_of_its_own(prompt: Prompt) -> None:
    generation = FakeGeneration(written)
    async with serve(generation.contract()) as server:
        assert await answered(server.target, prompt, "a", "b", "c") == {0: "a", 1: "b", 2: "c"}
        assert generation.batch_sizes == [3]
        assert await answered(server.target, prompt, "d") == {0: "d"}
    assert generation.batch_sizes == [3]


async def test_a_failed_or_truncated_request_affects_no_other(prompt: Prompt) -> None:
    def reply(request: GenerateRequest) -> Any:
        match goal_of(request):
            case "fails":
                return ServiceError(
                    grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE, "down"
                )
            case "unknown":
                return ServiceError(
                    grpc.StatusCode.INVALID_ARGUMENT, error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN, "no model"
                )
            case "cut":
                return completion("{", status=generation_service_pb2.COMPLETION_STATUS_TRUNCATED)
        return written(request)

    async with serve(FakeGeneration(reply).contract()) as server:
        found = await ask_all(server.target, prompt, "a", "fails", "unknown", "cut", "b")
    assert steps(found) == {0: "a", 4: "b"}
    assert reason(found[1]) == verdict_pb2.ABSTAIN_REASON_PROVIDER_UNAVAILABLE
    assert reason(found[3]) == verdict_pb2.ABSTAIN_REASON_TRUNCATED
    unknown = found[2]
    assert isinstance(unknown, ServiceError)
    assert unknown.reason == error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN


async def test_a_slow_request_holds_up_no_other(prompt: Prompt) -> None:
    go_on = asyncio.Event()

    async def reply(request: GenerateRequest) -> Any:
        if goal_of(request) == "slow":
            await go_on.wait()
        return written(request)

    order: list[int] = []
    async with serve(FakeGeneration(reply).contract()) as server, open_channel(server.target) as channel:
        asker = Asker(GenerationServiceStub(channel))
        async for index, _ in asker.ask_all(questions(prompt, "slow", "a", "b"), JudgeOptions()):
            order.append(index)
            if len(order) == 2:
                go_on.set()
    assert sorted(order[:2]) == [1, 2]
    assert order[2] == 0


async def test_what_a_broken_stream_lacks_is_requested_again_and_nothing_else(prompt: Prompt) -> None:
    generation = FakeGeneration(written, break_after=2)
    async with serve(generation.contract()) as server:
        assert await answered(server.target, prompt, *"abcd") == dict(enumerate("abcd"))
    assert generation.batch_sizes == [4, 2]


async def test_indices_are_those_of_the_call_that_answers(prompt: Prompt) -> None:
    async def respond(call: int, request: GenerateBatchRequest) -> AsyncIterator[bytes]:
        yield good(len(request.requests) - 1, request)
        if call < 3:
            yield b"lost"
        yield good(0, request)

    async with responding(respond) as (target, requests):
        assert await answered(target, prompt, *"abcd") == dict(enumerate("abcd"))
    assert [[goal_of(one) for one in request.requests] for request in requests] == [
        ["a", "b", "c", "d"],
        ["a", "b", "c"],
        ["a", "b"],
    ]


async def test_a_stream_that_breaks_again_and_again_is_given_up(prompt: Prompt) -> None:
    async def respond(call: int, request: GenerateBatchRequest) -> AsyncIterator[bytes]:
        yield good(0, request)
        yield b"lost"

    async with responding(respond) as (target, requests):
        found = await ask_all(target, prompt, *"abcdef")
    assert len(requests) == streams.MAX_ATTEMPTS
    assert steps(found) == dict(enumerate("abcd"))
    assert reason(found[4]) == reason(found[5]) == verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE


async def test_an_index_without_an_answer_abstains_alone(prompt: Prompt) -> None:
    async def respond(call: int, request: GenerateBatchRequest) -> AsyncIterator[bytes]:
        yield good(2, request)
        yield good(0, request)

    async with responding(respond) as (target, requests):
        found = await ask_all(target, prompt, *"abc")
    assert len(requests) == 1
    assert steps(found) == {0: "a", 2: "c"}
    assert reason(found[1]) == verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\xff\xff\xff\xff",
        GenerateBatchResponse(index=7, completion=completion("strange")).SerializeToString(),
        GenerateBatchResponse(index=0, completion=completion("again")).SerializeToString(),
    ],
)
async def test_rubbish_between_the_answers_is_left_out(rubbish: bytes, prompt: Prompt) -> None:
    async def respond(call: int, request: GenerateBatchRequest) -> AsyncIterator[bytes]:
        yield good(0, request)
        yield rubbish
        yield good(1, request)

    async with responding(respond) as (target, _):
        assert await answered(target, prompt, *"ab") == {0: "a", 1: "b"}


async def test_an_answer_that_is_neither_completion_nor_error_abstains(prompt: Prompt) -> None:
    async def respond(call: int, request: GenerateBatchRequest) -> AsyncIterator[bytes]:
        yield GenerateBatchResponse(index=1).SerializeToString()
        yield good(0, request)

    async with responding(respond) as (target, _):
        found = await ask_all(target, prompt, *"ab")
    assert steps(found) == {0: "a"}
    assert reason(found[1]) == verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE


async def test_answers_are_kept_when_the_stream_has_no_end(prompt: Prompt, monkeypatch: Any) -> None:
    monkeypatch.setattr(streams, "_END_OF_STREAM_SECONDS", 0.05)

    async def respond(call: int, request: GenerateBatchRequest) -> AsyncIterator[bytes]:
        for index in range(len(request.requests)):
            yield good(index, request)
        await asyncio.Event().wait()

    async with responding(respond) as (target, _), asyncio.timeout(20):
        assert await answered(target, prompt, *"ab") == {0: "a", 1: "b"}


async def test_no_message_is_larger_than_servers_accept(prompt: Prompt, monkeypatch: Any) -> None:
    monkeypatch.setattr(llm, "MAX_REQUEST_BYTES", 20_000)
    generation = FakeGeneration(lambda request: {"considerations": "None.", "steps": [goal_of(request)[-1]]})
    goals = ["x" * 8000 + name for name in "abcde"] + ["y" * 30_000]
    async with serve(generation.contract(), max_message_bytes=50_000) as server:
        found = await answered(server.target, prompt, *goals)
    assert found == dict(enumerate("abcdey"))
    assert sorted(generation.batch_sizes) == [1, 1, 2, 2]


def parts(sizes: Sequence[int], most_items: int = 3, most_bytes: int = 10) -> list[list[int]]:
    return [list(part) for part in streams.split_by_size(sizes, most_items, most_bytes)]


def test_items_are_split_by_number_and_size() -> None:
    assert parts([]) == []
    assert parts([1, 2, 3, 4]) == [[0, 1, 2], [3]]
    assert parts([6, 6, 50, 1]) == [[0], [1], [2], [3]]
    assert parts([5, 5, 1]) == [[0, 1], [2]]
