"""The requirements of GenerationService."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence
from functools import partial

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.conformance.common import (
    CLIENT_MESSAGE_BYTES,
    Calls,
    call_checks,
    identity_checks,
    require_possible_usage,
)
from dramaturg.conformance.kit import NotApplicableError, Subject, Suite, require
from dramaturg.service.errors import ServiceError, from_error_status, from_rpc_error

MOST_REQUESTS = 200
"""The most requests of a batch, by the contract."""
MOST_MESSAGES = 1000
"""The most messages of a conversation, by the contract."""
UNKNOWN_MODEL = "no-such-model-of-the-conformance-kit"
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"answer": {"type": "string"}},
        "required": ["answer"],
        "additionalProperties": False,
    }
)
"""The schema of answers in JSON."""
_REMEDY_FORM = (
    "State status, fingerprint and calls; json where it fits the schema; why an answer is of no use."
)
_REMEDY_BATCH = "Send one response for each request, with its index, also where the request fails."
_REMEDY_CACHE = (
    "Keep completions by the fingerprint of the request, and let equal requests wait for the first one."
)


def conversation(subject: Subject, text: str, **fields: object) -> pb.GenerateRequest:
    """A request with one message."""
    values: dict[str, object] = {
        "model": subject.model,
        "messages": [pb.Message(role=pb.MESSAGE_ROLE_USER, text=text)],
    }
    return pb.GenerateRequest(**values | fields)  # type: ignore[arg-type]


def _in_json(subject: Subject, text: str, schema: str = SCHEMA) -> pb.GenerateRequest:
    return conversation(subject, text, json_format=pb.JsonFormat(name="answer", schema=schema))


async def generate(
    subject: Subject, request: pb.GenerateRequest, timeout: float | None = None
) -> pb.Completion:
    """Has a conversation completed."""
    response: pb.GenerateResponse | None = await GenerationServiceStub(subject.channel).Generate(
        request, timeout=timeout or subject.timeout
    )
    require(response is not None and response.HasField("completion"), "the response has no completion")
    assert response is not None
    return response.completion


async def generate_batch(
    subject: Subject, requests: Sequence[pb.GenerateRequest]
) -> Sequence[pb.Completion | ServiceError]:
    """Has conversations completed in one call; the results are in the order of the requests.

    Raises:
        RequirementError: A request has no response, or several.
    """
    request = pb.GenerateBatchRequest(requests=requests)
    call = GenerationServiceStub(subject.channel).GenerateBatch(request, timeout=subject.timeout)
    responses = [response async for response in call]
    indices = sorted(response.index for response in responses)
    require(
        indices == list(range(len(requests))),
        f"{len(requests)} requests were answered by the indices {indices}",
    )
    found: dict[int, pb.Completion | ServiceError] = {}
    for response in responses:
        result = response.WhichOneof("result")
        require(result is not None, f"the response {response.index} has neither completion nor error")
        found[response.index] = (
            response.completion if result == "completion" else from_error_status(response.error)
        )
    return [found[index] for index in range(len(requests))]


def require_sound(completion: pb.Completion, *, in_json: bool = False) -> None:
    """Requires that a completion is well formed."""
    status = pb.CompletionStatus.Name(completion.status)
    is_useful = completion.status == pb.COMPLETION_STATUS_OK
    require(completion.status != pb.COMPLETION_STATUS_UNSPECIFIED, "the status is not stated")
    require(bool(completion.fingerprint), "the fingerprint is empty")
    require(bool(completion.calls), "no calls are named")
    require(all(call.fingerprint for call in completion.calls), "a call has no fingerprint")
    require(
        completion.HasField("json") == (in_json and is_useful),
        f"json must be present if and only if a schema was asked for and the status is OK; it is {status}",
    )
    require(bool(completion.text) or not is_useful, "the text of a useful answer is empty")
    explained = bool(completion.status_detail or completion.parse_error)
    require(is_useful or explained, f"nothing says why the answer is {status}")


async def _send(subject: Subject, text: str, timeout: float | None = None) -> pb.Completion:
    return await generate(subject, conversation(subject, text), timeout)


async def _ask(subject: Subject, text: str, timeout: float | None = None) -> pb.Completion:
    completion = await _send(subject, text, timeout)
    require_sound(completion)
    return completion


async def _ask_largest(subject: Subject) -> None:
    many = [pb.Message(role=pb.MESSAGE_ROLE_USER, text="Go on.")] * MOST_MESSAGES
    completion = await generate(subject, conversation(subject, "", messages=many))
    subject.largest_answers.append(completion)
    require_sound(completion)
    batch = [conversation(subject, f"Cup number {number % 10}.") for number in range(MOST_REQUESTS)]
    for result in await generate_batch(subject, batch):
        require(
            not isinstance(result, ServiceError), f"a request of the largest batch has the error {result!r}"
        )
        assert isinstance(result, pb.Completion)
        subject.largest_answers.append(result)
        require_sound(result)


GENERATIONS = Suite()
"""The checks of a generation service."""
check = GENERATIONS.check
_CALLS = Calls(
    _send,
    _ask,
    _ask_largest,
    lambda subject: [
        (partial(generate, subject, conversation(subject, "", messages=[])), "messages"),
        (
            partial(generate, subject, conversation(subject, "", messages=[pb.Message(text="Tea.")])),
            "messages[0].role",
        ),
        (partial(generate, subject, conversation(subject, "x" * 2_000_001)), "messages[0].text"),
        (partial(generate, subject, _in_json(subject, "Tea.", "{")), "json_format.schema"),
        (partial(generate_batch, subject, []), "requests"),
    ],
    answer_bytes=CLIENT_MESSAGE_BYTES,
)
identity_checks(GENERATIONS, _CALLS)


@check("An ordinary request has a well-formed completion.", remedy=_REMEDY_FORM)
async def answers_well_formed(subject: Subject) -> None:
    """Checks an answer in text."""
    await _ask(subject, "Name a drink in one word.")


@check(
    "A request for JSON has an answer that fits the schema, or says why there is none.", remedy=_REMEDY_FORM
)
async def keeps_to_the_schema(subject: Subject) -> None:
    """Checks an answer in JSON."""
    completion = await generate(subject, _in_json(subject, "Name a drink in one word, as JSON."))
    require_sound(completion, in_json=True)
    if not completion.HasField("json"):
        return
    try:
        answer = json.loads(completion.json)
    except ValueError:
        answer = None
    fits = isinstance(answer, dict) and answer.keys() == {"answer"} and isinstance(answer["answer"], str)
    require(fits, f"json is {completion.json[:200]!r}, which does not fit the schema")


@check("An empty message has a completion, or an error with an ErrorInfo.", remedy=_REMEDY_FORM)
async def answers_empty_input(subject: Subject) -> None:
    """Checks a message without content, which providers may refuse."""
    try:
        require_sound(await generate(subject, conversation(subject, "")))
    except grpc.aio.AioRpcError as error:
        found = from_rpc_error(error)
        require(bool(found.reason), f"it fails with {found.code.name} without an ErrorInfo")


@check(
    "The usage is possible and the sum of that of the calls, each of which is bought or cached.",
    remedy="Add the usage of the calls up; count each as a provider call or as a cache hit.",
)
async def reports_possible_usage(subject: Subject) -> None:
    """Checks the usage of an answer."""
    completion = await _send(subject, "Name a drink in one word.")
    usage = completion.usage
    require_possible_usage(usage, len(completion.calls))
    for field in ("prompt_token_count", "completion_token_count"):
        total, parts = getattr(usage, field), sum(getattr(call.usage, field) for call in completion.calls)
        require(total == parts, f"usage.{field} is {total}, that of the calls together {parts}")
    answered = usage.provider_call_count + usage.cache_hit_count
    require(answered >= 1, "usage counts neither a provider call nor a cache hit")


@check("Equal requests have equal fingerprints, and others have other ones.", remedy=_REMEDY_CACHE)
async def addresses_by_content(subject: Subject) -> None:
    """Checks the fingerprints of requests that differ in one thing, sent at once."""
    text = "Name a drink in one word."
    requests = [
        conversation(subject, text),
        conversation(subject, text),
        conversation(subject, f"{text} "),
        conversation(subject, text, repeat_index=1),
        _in_json(subject, text),
        *(conversation(subject, f"Cup number {number}.") for number in range(20)),
    ]
    completions = await asyncio.gather(*(generate(subject, request) for request in requests))
    first, again, *others = (completion.fingerprint for completion in completions)
    require(first == again, f"an equal request has the fingerprint {again}, not {first}")
    require(len({first, *others}) == len(others) + 1, "different requests have the same fingerprint")


@check(
    "A request that was answered is not bought again: the same text, cached, at no cost.",
    remedy=_REMEDY_CACHE,
)
async def buys_once(subject: Subject) -> None:
    """Checks a repeated request, and equal ones at once, which are new to the service."""
    request = conversation(subject, f"Name a drink in one word. ({secrets.token_hex(8)})")
    together = await asyncio.gather(*(generate(subject, request) for _ in range(5)))
    if any(one.status != pb.COMPLETION_STATUS_OK for one in together):
        raise NotApplicableError("the model gave no answer of use, and such answers are not kept")
    again = await generate(subject, request)
    bought = sum(one.usage.provider_call_count for one in (*together, again))
    calls = len(again.calls)
    require(bought <= calls, f"six equal requests were bought {bought} times")
    require(all(call.cached for call in again.calls), "a call of the repeated request is not cached")
    require(again.usage.cost_usd == 0.0, f"the repeated request costs {again.usage.cost_usd} USD")
    texts = {one.text for one in (*together, again)}
    require(len(texts) == 1, f"equal requests have {len(texts)} texts")


@check("Each request of a batch is answered once, by its index.", remedy=_REMEDY_BATCH)
async def answers_each_of_a_batch(subject: Subject) -> None:
    """Checks an ordinary batch; completions are those of the requests alone."""
    requests = [conversation(subject, f"Cup number {number}.") for number in range(5)]
    alone = [await generate(subject, request) for request in requests]
    for index, result in enumerate(await generate_batch(subject, requests)):
        require(not isinstance(result, ServiceError), f"request {index} has the error {result!r}")
        assert isinstance(result, pb.Completion)
        require(
            result.fingerprint == alone[index].fingerprint,
            f"request {index} has the completion of another request",
        )


@check(
    "A request of a batch that fails has an error of its own, and the others are answered.",
    remedy=_REMEDY_BATCH,
)
async def keeps_requests_apart(subject: Subject) -> None:
    """Checks a batch with a request whose schema is none."""
    requests = [conversation(subject, f"Cup number {number}.") for number in range(3)]
    requests.insert(1, _in_json(subject, "Tea.", "{"))
    try:
        results = await generate_batch(subject, requests)
    except grpc.aio.AioRpcError as failed:
        error = from_rpc_error(failed)
        fields = [one.field for one in error.violations]
        if error.code is grpc.StatusCode.INVALID_ARGUMENT and "requests[1].json_format.schema" in fields:
            raise NotApplicableError(
                "the service refuses batches with an invalid schema as a whole"
            ) from failed
        raise
    for index, result in enumerate(results):
        if index == 1:
            require(isinstance(result, ServiceError), "the request with an invalid schema was answered")
            assert isinstance(result, ServiceError)
            require(
                result.code is grpc.StatusCode.INVALID_ARGUMENT and bool(result.reason),
                f"its error is {result!r}, not INVALID_ARGUMENT with a reason",
            )
        else:
            require(not isinstance(result, ServiceError), f"request {index} has the error {result!r}")


@check(
    "A model that does not exist is refused, with ERROR_REASON_MODEL_UNKNOWN or the provider's reason.",
    remedy="Fail the call with INVALID_ARGUMENT or FAILED_PRECONDITION and an ErrorInfo; use no other model.",
)
async def refuses_unknown_models(subject: Subject) -> None:
    """Checks the error of an unknown model, of services whose provider does not answer to any name."""
    request = conversation(subject, "Tea.", model=UNKNOWN_MODEL)
    try:
        completion = await generate(subject, request)
    except grpc.aio.AioRpcError as failed:
        error = from_rpc_error(failed)
        require(
            error.code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION),
            f"the code is {error.code.name}",
        )
        require(
            error.reason
            in (
                error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
                error_reason_pb2.ERROR_REASON_PROVIDER_REJECTED,
                error_reason_pb2.ERROR_REASON_COMPLETION_NOT_RECORDED,
            ),
            f"the ErrorInfo's reason is {error.reason_name}",
        )
        return
    asked = {call.requested_model for call in completion.calls}
    require(
        asked == {UNKNOWN_MODEL}, f"the model {UNKNOWN_MODEL!r} was asked for, and {sorted(asked)} answered"
    )
    raise NotApplicableError("the provider answers to any name of a model")


@check(
    "Providers, limits, the ledger and the configuration of a model are told without a call to a model.",
    remedy="Answer ListModels, GetRateLimits, GetLedgerStatus and CheckProvider with configuration_only.",
)
async def tells_its_configuration(subject: Subject) -> None:
    """Checks the methods beside the generation."""
    stub, timeout = GenerationServiceStub(subject.channel), subject.timeout
    models, limits, ledger, checked = await asyncio.gather(
        stub.ListModels(pb.ListModelsRequest(), timeout=timeout),
        stub.GetRateLimits(pb.GetRateLimitsRequest(), timeout=timeout),
        stub.GetLedgerStatus(pb.GetLedgerStatusRequest(), timeout=timeout),
        stub.CheckProvider(
            pb.CheckProviderRequest(model=subject.model, configuration_only=True), timeout=timeout
        ),
    )
    names = [one.provider for one in models.providers]
    require(bool(names), "no provider is listed")
    unlisted = {one.provider for one in limits.providers} - set(names)
    require(not unlisted, f"there are limits of {sorted(unlisted)}, which are not listed")
    require(ledger.status.kind != pb.LEDGER_KIND_UNSPECIFIED, "the kind of the ledger is not stated")
    require(
        checked.check.provider in names,
        f"the model's provider is {checked.check.provider!r}, which is not listed",
    )


@check(
    "A batch that the caller cancels leaves the service able to answer.",
    remedy="Stop the work of a batch that ended.",
)
async def survives_cancelled_batches(subject: Subject) -> None:
    """Checks a stream that is given up after its first response."""
    requests = [conversation(subject, f"Spoon number {number}.") for number in range(20)]
    call = GenerationServiceStub(subject.channel).GenerateBatch(
        pb.GenerateBatchRequest(requests=requests), timeout=subject.timeout
    )
    async for _ in call:
        break
    call.cancel()
    await _send(subject, "Heat the water.")


call_checks(GENERATIONS, _CALLS)
