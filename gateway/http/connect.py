"""The Connect protocol: requests with one message, and streams of enveloped messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import grpc
from aiohttp import web
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from dramaturg.service.context import Metadata
from dramaturg.service.errors import ServiceError
from gateway.http.bodies import Codec, envelope
from gateway.http.forwarding import CallError, Exchange, from_service_error
from gateway.http.headers import begin, to_base64, to_headers

VERSION = "Connect-Protocol-Version"
_END = 2
_TRAILER = "Trailer-"
_STATUS: Mapping[grpc.StatusCode, int] = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DATA_LOSS: 500,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}


async def answer_unary(
    exchange: Exchange, codec: Codec, content_type: str, extra: Mapping[str, str]
) -> web.StreamResponse:
    """Answers a request with one message, the last of the call, or with an error.

    Args:
        exchange: The call.
        codec: The caller's form of messages.
        content_type: That of the request.
        extra: Further headers of the answer.
    """
    last = b""
    try:
        async for response in exchange.responses():
            last = response
    except CallError as error:
        return unary_error(error, extra)
    headers = [
        *extra.items(),
        *to_headers(await exchange.initial_metadata()),
        *to_headers(await exchange.trailing_metadata(), _TRAILER),
    ]
    body = await codec.encode(last)
    return web.Response(body=body, headers=[*headers, ("Content-Type", content_type)])


async def answer_stream(
    exchange: Exchange,
    codec: Codec,
    request: web.BaseRequest,
    content_type: str,
    extra: Mapping[str, str],
) -> web.StreamResponse:
    """Answers a request with enveloped messages, and an error at their end."""
    answer: web.StreamResponse | None = None
    end: dict[str, Any] = {}

    trailing: Metadata = ()
    try:
        async for response in exchange.responses():
            if answer is None:
                answer = await begin(request, await exchange.initial_metadata(), content_type, extra)
            await answer.write(envelope(0, await codec.encode(response)))
        trailing = await exchange.trailing_metadata()
    except CallError as error:
        trailing = error.trailing
        end["error"] = error_json(error)
        if answer is None:
            answer = await begin(request, error.initial, content_type, extra)
    except ServiceError as error:  # a response that JSON cannot state
        end["error"] = error_json(from_service_error(error, exchange.request_id))
    if answer is None:
        answer = await begin(request, await exchange.initial_metadata(), content_type, extra)
    if metadata := _end_metadata(trailing):
        end["metadata"] = metadata
    await answer.write(envelope(_END, json.dumps(end).encode()))
    await answer.write_eof()
    return answer


def _end_metadata(trailing: Metadata) -> Mapping[str, Sequence[str]]:
    """The metadata in the last message of a stream."""
    metadata: dict[str, list[str]] = {}
    for key, value in to_headers(trailing):
        metadata.setdefault(key, []).append(value)
    return metadata


def stream_error(error: CallError, content_type: str, extra: Mapping[str, str]) -> web.Response:
    """The answer to a stream that was not forwarded."""
    body: dict[str, Any] = {"error": error_json(error)}
    if metadata := _end_metadata(error.trailing):
        body["metadata"] = metadata
    end = json.dumps(body).encode()
    return web.Response(body=envelope(_END, end), headers={**extra, "Content-Type": content_type})


def unary_error(error: CallError, extra: Mapping[str, str]) -> web.Response:
    """The answer with an error in place of a message."""
    headers = [
        *extra.items(),
        *to_headers(error.initial),
        *to_headers(error.trailing, _TRAILER),
        ("Content-Type", "application/json"),
    ]
    body = json.dumps(error_json(error), ensure_ascii=False).encode()
    return web.Response(status=_STATUS.get(error.code, 500), body=body, headers=headers)


def unsupported(kinds: Iterable[str], extra: Mapping[str, str]) -> web.Response:
    """The answer to a request with a content type that its path does not take."""
    accepted = ", ".join(kinds)
    message = f"send one of the content types {accepted}"
    return refused(415, message, {**extra, "Accept-Post": accepted})


def refused(status: int, message: str, extra: Mapping[str, str]) -> web.Response:
    """The answer to a request of another protocol, with the code that clients read from its status."""
    body = json.dumps({"code": "unknown", "message": message}).encode()
    return web.Response(status=status, body=body, headers={**extra, "Content-Type": "application/json"})


def error_json(error: CallError) -> Mapping[str, Any]:
    """An error with its details: encoded, and for people as JSON in ``debug``."""
    code = "canceled" if error.code is grpc.StatusCode.CANCELLED else error.code.name.lower()
    body: dict[str, Any] = {"code": code, "message": error.message}
    try:
        details = error.status.details
    except DecodeError:
        return body
    if details:
        body["details"] = [_detail(one) for one in details]
    return body


def _detail(detail: Any) -> Mapping[str, Any]:
    name = detail.type_url.rpartition("/")[2]
    encoded: dict[str, Any] = {"type": name, "value": to_base64(detail.value)}
    try:
        kind = message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))
        encoded["debug"] = json_format.MessageToDict(kind.FromString(detail.value))
    except (KeyError, DecodeError, json_format.SerializeToJsonError):
        pass  # It is for people alone.
    return encoded
