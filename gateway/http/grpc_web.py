"""gRPC-web: enveloped messages, and the status as the last of them, optionally in base64."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from aiohttp import web

from dramaturg.service.context import Metadata
from gateway.http.bodies import envelope
from gateway.http.forwarding import CallError, Exchange
from gateway.http.headers import DETAILS_METADATA, begin, to_base64, to_headers

_TRAILERS = 0x80
_UNESCAPED = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
TEXT = "application/grpc-web-text"


async def answer_call(
    exchange: Exchange, request: web.BaseRequest, content_type: str, extra: Mapping[str, str]
) -> web.StreamResponse:
    """Answers a request of gRPC-web.

    Args:
        exchange: The call.
        request: The request.
        content_type: That of the request.
        extra: Further headers of the answer.
    """
    answer: web.StreamResponse | None = None
    error: CallError | None = None
    try:
        async for response in exchange.responses():
            if answer is None:
                answer = await begin(request, await exchange.initial_metadata(), content_type, extra)
            await answer.write(_encoded(envelope(0, response), content_type))
        trailing = await exchange.trailing_metadata()
        if answer is None:
            answer = await begin(request, await exchange.initial_metadata(), content_type, extra)
    except CallError as raised:
        error, trailing = raised, raised.trailing
        if answer is None:
            answer = await begin(request, error.initial, content_type, extra)
    await answer.write(_encoded(_end(error, trailing), content_type))
    await answer.write_eof()
    return answer


def call_error(error: CallError, content_type: str, extra: Mapping[str, str]) -> web.Response:
    """The answer to a request that was not forwarded."""
    body = _encoded(_end(error, error.trailing), content_type)
    return web.Response(body=body, headers={**extra, "Content-Type": content_type})


def _end(error: CallError | None, trailing: Metadata) -> bytes:
    lines: Sequence[tuple[str, str]] = [("grpc-status", str(error.code.value[0] if error else 0))]
    if error is not None:
        lines = [*lines, ("grpc-message", quote(error.message, safe=_UNESCAPED))]
        if error.details:
            lines = [*lines, (DETAILS_METADATA, to_base64(error.details))]
    text = "".join(f"{key}: {value}\r\n" for key, value in [*lines, *to_headers(trailing)])
    return envelope(_TRAILERS, text.encode())


def _encoded(data: bytes, content_type: str) -> bytes:
    return base64.b64encode(data) if content_type.startswith(TEXT) else data
