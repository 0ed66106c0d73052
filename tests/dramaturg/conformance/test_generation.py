"""The checks of generation services, against ours and several that break their contract."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import grpc
import pytest

from dramaturg import conformance
from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.conformance.generation import UNKNOWN_MODEL
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve
from services.generation.app import App as GenerationApp
from services.generation.servicer import GenerationServicer
from tests.support.generation import endpoint, generation_settings
from tests.support.openai_server import Answer, OpenAIServer


def answer(body: dict[str, Any]) -> Any:
    """Answers in the form asked for; the model does not exist under the name that the kit asks for."""
    if body["model"] == UNKNOWN_MODEL:
        return Answer("The model does not exist.", status=404, error_code="model_not_found")
    said = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()
    return {"answer": said} if "response_format" in body else said


async def broken(contracts: Sequence[Contract], least: int = 20) -> tuple[dict[str, str], list[str]]:
    """The checks that fail, with how, and those that are skipped."""
    async with serve(*contracts) as server:
        role = conformance.checked_role("generation")
        outcomes = await conformance.run(role, server.target, timeout=60)
    assert len(outcomes) >= least
    skipped = [one.check.name for one in outcomes if one.skipped]
    return {one.check.name: one.failure for one in outcomes if one.broken}, skipped


async def service(
    change: Callable[[GenerationServicer], None] = lambda _: None,
) -> tuple[dict[str, str], list[str]]:
    """Checks our service with a scripted provider, after a change of its servicer."""
    async with (
        OpenAIServer(answer, record=False) as server,
        GenerationApp(generation_settings(providers={"p0": endpoint(server)})).open() as contracts,
    ):
        (main,) = [one for one in contracts if one.full_name.endswith(".GenerationService")]
        change(main.servicer)
        return await broken([main])


async def test_our_service_keeps_its_contract() -> None:
    failures, skipped = await service()
    assert failures == {}
    assert skipped == ["drains"]


def _generate(change: Callable[[pb.GenerateRequest, pb.Completion], None]) -> Callable[[Any], None]:
    """Changes completions of Generate."""

    def apply(servicer: Any) -> None:
        generate = servicer.Generate

        async def changed(request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:
            response = pb.GenerateResponse()
            response.CopyFrom(await generate(request, context))
            change(request, response.completion)
            return response

        servicer.Generate = changed

    return apply


Responses = list[pb.GenerateBatchResponse]


def _batch(change: Callable[[pb.GenerateBatchRequest, Responses], None]) -> Callable[[Any], None]:
    """Changes the responses of GenerateBatch."""

    def apply(servicer: Any) -> None:
        generate_batch = servicer.GenerateBatch

        async def changed(request: pb.GenerateBatchRequest, context: Any) -> AsyncIterator[Any]:
            responses = [one async for one in generate_batch(request, context)]
            change(request, responses)
            for one in responses:
                yield one

        servicer.GenerateBatch = changed

    return apply


def no_status(_: Any, completion: pb.Completion) -> None:
    completion.ClearField("status")


def bad_json(_: Any, completion: pb.Completion) -> None:
    if completion.HasField("json"):
        completion.json = '{"answer": 7}'


def paid_again(_: Any, completion: pb.Completion) -> None:
    for call in completion.calls:
        call.cached = False


def added_tokens(_: Any, completion: pb.Completion) -> None:
    completion.usage.prompt_token_count += 1


def one_address(_: Any, completion: pb.Completion) -> None:
    completion.fingerprint = "0" * 64


def twice(_: Any, responses: Responses) -> None:
    responses.append(responses[0])


def lost(_: Any, responses: Responses) -> None:
    del responses[0]


def exchanged(_: Any, responses: Responses) -> None:
    if len(responses) == 5:
        responses[0].index, responses[1].index = responses[1].index, responses[0].index


def refused_as_a_whole(request: pb.GenerateBatchRequest, _: Any) -> None:
    if any(one.json_format.schema == "{" for one in request.requests):
        raise ServiceError(
            grpc.StatusCode.INVALID_ARGUMENT, error_reason_pb2.ERROR_REASON_FIELD_INVALID, "a bad batch"
        )


def any_model(servicer: Any) -> None:
    generate = servicer.Generate

    async def changed(request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:
        if request.model == UNKNOWN_MODEL:
            request.model = ""
        response: pb.GenerateResponse = await generate(request, context)
        return response

    servicer.Generate = changed


BATCHES = frozenset({"answers-each-of-a-batch", "keeps-requests-apart", "answers-the-largest-input"})


@pytest.mark.parametrize(
    ("change", "failing", "message"),
    [
        (
            _generate(no_status),
            {"answers-well-formed", "keeps-to-the-schema", "answers-empty-input", "bears-every-plane"}
            | {"answers-the-largest-input", "keeps-calls-apart"},
            "the status is not stated",
        ),
        (_generate(bad_json), {"keeps-to-the-schema"}, "which does not fit the schema"),
        (_generate(paid_again), {"buys-once"}, "is not cached"),
        (_generate(added_tokens), {"reports-possible-usage"}, "that of the calls together"),
        (_generate(one_address), {"addresses-by-content", "answers-each-of-a-batch"}, "request"),
        (_batch(twice), BATCHES, "were answered by the indices"),
        (_batch(lost), BATCHES, "were answered by the indices"),
        (_batch(exchanged), {"answers-each-of-a-batch"}, "the completion of another request"),
        (_batch(refused_as_a_whole), {"keeps-requests-apart"}, "INVALID_ARGUMENT: a bad batch"),
        (any_model, {"refuses-unknown-models"}, "answered"),
    ],
)
async def test_what_is_broken_is_named(
    change: Callable[[Any], None], failing: AbstractSet[str], message: str
) -> None:
    failures, _ = await service(change)
    assert failures.keys() == failing
    assert all(message in failure for failure in failures.values())
