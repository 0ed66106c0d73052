"""A generation service with scripted answers.

Without a script, an answer is a small value that fits the JSON Schema of the request.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.provenance_pb2 import CompletionReference, Usage
from dramaturg.api.generation.v1 import generation_service_pb2, generation_service_pb2_grpc
from dramaturg.api.generation.v1.generation_service_pb2 import (
    CheckProviderRequest,
    CheckProviderResponse,
    Completion,
    GenerateBatchRequest,
    GenerateBatchResponse,
    GenerateRequest,
    GenerateResponse,
    GetLedgerStatusRequest,
    GetLedgerStatusResponse,
    GetRateLimitsRequest,
    GetRateLimitsResponse,
    ListModelsRequest,
    ListModelsResponse,
    ProviderCheck,
)
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, to_error_status
from dramaturg.testing.servers import as_ready

Answer: TypeAlias = "Completion | ServiceError | str | Mapping[str, Any]"
"""A completion, an error, the text of an answer, or an answer in JSON."""
Reply: TypeAlias = "Callable[[GenerateRequest], Answer | Awaitable[Answer]]"
"""Answers a request. A coroutine may wait, or fail, as long as it likes."""

MODEL = "fake-1"
"""The model that answers."""


def smallest_instance(schema: Mapping[str, Any]) -> Any:
    """A small value that fits a schema of the kind that judges ask for.

    Understood are ``const``, ``enum``, ``type``, required ``properties``, ``items`` with ``minItems``,
    ``minimum``, ``minLength``, the first member of ``anyOf``, ``oneOf`` and ``allOf``, and references to
    ``$defs``.

    Args:
        schema: The schema (draft 2020-12).
    """
    return _instance(schema, schema)


def _instance(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "$ref" in schema:
        return _instance(_referenced(schema["$ref"], root), root)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return _instance(schema[choice][0], root)
    kind = schema.get("type", "object")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            members = schema.get("properties", {})
            return {name: _instance(members.get(name, {}), root) for name in schema.get("required", ())}
        case "array":
            return [_instance(schema.get("items", {}), root) for _ in range(schema.get("minItems", 0))]
        case "string":
            return "-" * schema.get("minLength", 1)
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case _:
            return None


def _referenced(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


def completion(answer: str | Mapping[str, Any], **fields: Any) -> Completion:
    """A completion that a provider answered, for 10 input and 5 output tokens.

    Args:
        answer: The text, or what the text says in JSON.
        fields: Other fields of the completion, such as ``status``.
    """
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    usage = Usage(prompt_token_count=10, completion_token_count=5, provider_call_count=1)
    call = CompletionReference(
        fingerprint="f" * 64, provider="fake", answered_model=MODEL, raw_text=text, usage=usage
    )
    values: dict[str, Any] = {
        "status": generation_service_pb2.COMPLETION_STATUS_OK,
        "text": text,
        "calls": [call],
        "usage": usage,
    }
    if not isinstance(answer, str):
        values["json"] = text
    return Completion(**values | fields)


def plain_answer(request: GenerateRequest) -> Completion:
    """The smallest JSON that fits the schema of a request; "An answer." where it asks for text."""
    if not request.HasField("json_format"):
        return completion("An answer.")
    return completion(smallest_instance(json.loads(request.json_format.schema)))


class FakeGeneration(generation_service_pb2_grpc.GenerationServiceServicer):
    """Answers as scripted and records every request.

    Example:
        >>> generation = FakeGeneration([{"verdict": "pass"}, "no JSON", error])
        >>> async with serve(generation.contract()) as server, open_channel(server.target) as channel:
        ...     response = await GenerationServiceStub(channel).Generate(request)
        >>> assert response.completion.json == '{"verdict": "pass"}'
        >>> assert generation.requests == [request]

    Args:
        reply: Answers a request; or the answers themselves, in the order of the requests, each used once. A
            ``ServiceError`` among them fails its request. Default: ``plain_answer``.
        delay: Seconds before each answer. The requests of a batch wait side by side.
        break_after: The first call of GenerateBatch ends with UNAVAILABLE after this number of responses.
            None: no call breaks.

    Attributes:
        reply: May be replaced while it serves.
        requests: The requests, those of batches one by one, in order of arrival.
        batch_sizes: The number of requests of each call of GenerateBatch.
    """

    def __init__(
        self,
        reply: Reply | Iterable[Answer] = plain_answer,
        *,
        delay: float = 0.0,
        break_after: int | None = None,
    ) -> None:
        self.reply: Reply = reply if callable(reply) else _scripted(reply)
        self.delay = delay
        self.break_after = break_after
        self.requests: list[GenerateRequest] = []
        self.batch_sizes: list[int] = []

    def contract(self) -> Contract:
        """What a server serves."""
        return Contract.make(
            generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"],
            generation_service_pb2_grpc.add_GenerationServiceServicer_to_server,
            self,
            name="fake-generation",
            version="1.0.0",
            description="Answers as scripted.",
        )

    @property
    def messages(self) -> Sequence[str]:
        """The texts of the last request's messages."""
        return [message.text for message in self.requests[-1].messages]

    async def Generate(self, request: GenerateRequest, context: Any) -> GenerateResponse:
        """Answers one request."""
        del context
        return GenerateResponse(completion=await self._answer(request))

    async def GenerateBatch(
        self, request: GenerateBatchRequest, context: Any
    ) -> AsyncIterator[GenerateBatchResponse]:
        """Answers several requests, each as soon as its answer is there."""
        del context
        self.batch_sizes.append(len(request.requests))
        left, self.break_after = self.break_after, None
        async with aclosing(as_ready(self._item(*one) for one in enumerate(request.requests))) as responses:
            async for response in responses:
                if left == 0:
                    raise ServiceError(
                        grpc.StatusCode.UNAVAILABLE,
                        error_reason_pb2.ERROR_REASON_UNSPECIFIED,
                        "the stream breaks here",
                    )
                left = None if left is None else left - 1
                yield response

    async def ListModels(self, request: ListModelsRequest, context: Any) -> ListModelsResponse:
        """Lists no provider; the default model is ``MODEL``."""
        del request, context
        return ListModelsResponse(default_model=MODEL)

    async def GetRateLimits(self, request: GetRateLimitsRequest, context: Any) -> GetRateLimitsResponse:
        """Tells of no limits."""
        del request, context
        return GetRateLimitsResponse()

    async def CheckProvider(self, request: CheckProviderRequest, context: Any) -> CheckProviderResponse:
        """Tells of a provider "fake" with the requested model, else ``MODEL``."""
        del context
        return CheckProviderResponse(check=ProviderCheck(provider="fake", model=request.model or MODEL))

    async def GetLedgerStatus(self, request: GetLedgerStatusRequest, context: Any) -> GetLedgerStatusResponse:
        """Tells of an empty ledger."""
        del request, context
        return GetLedgerStatusResponse()

    async def _item(self, index: int, request: GenerateRequest) -> GenerateBatchResponse:
        try:
            return GenerateBatchResponse(index=index, completion=await self._answer(request))
        except ServiceError as error:
            return GenerateBatchResponse(index=index, error=to_error_status(error))

    async def _answer(self, request: GenerateRequest) -> Completion:
        self.requests.append(request)
        answer = self.reply(request)
        if self.delay:
            await asyncio.sleep(self.delay)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, ServiceError):
            raise answer
        return answer if isinstance(answer, Completion) else completion(answer)


def _scripted(answers: Iterable[Answer]) -> Reply:
    left = iter(answers)

    def reply(request: GenerateRequest) -> Answer:
        del request
        for answer in left:
            return answer
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            error_reason_pb2.ERROR_REASON_COMPLETION_NOT_RECORDED,
            "the script of the fake has no more answers",
        )

    return reply
