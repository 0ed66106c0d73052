"""Calls a gateway by gRPC, the Connect protocol and gRPC-web."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import aiohttp
import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from multidict import CIMultiDict

END, TRAILERS = 2, 0x80
CODES = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclass(frozen=True)
class Request:
    """A call, independent of its protocol."""

    method: str
    messages: Sequence[Message]
    metadata: Mapping[str, str] | Sequence[tuple[str, str]]
    timeout: float | None = None
    compressed: bool = False
    """Whether the messages are compressed with gzip."""

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        """The metadata; a key may have several values."""
        return tuple(self.metadata.items() if isinstance(self.metadata, Mapping) else self.metadata)

    def framed(self, messages: Sequence[bytes]) -> bytes:
        """The body with enveloped messages."""
        if self.compressed:
            return b"".join(envelope(gzip.compress(one), 1) for one in messages)
        return b"".join(map(envelope, messages))


@dataclass(frozen=True)
class Outcome:
    """What a caller gets."""

    messages: Sequence[Message]
    code: str
    message: str
    details: Sequence[Message]
    trailing: Mapping[str, str]
    initial: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The metadata before the messages. Over HTTP it is among the other headers."""


Protocol = Callable[[str, str, Request], Any]
"""Makes a call, given the target of gRPC, the address of HTTP and the request."""


def envelope(data: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BI", flags, len(data)) + data


def opened(data: bytes) -> Sequence[tuple[int, bytes]]:
    messages, end = [], 0
    while end < len(data):
        flags, size = struct.unpack_from(">BI", data, end)
        messages.append((flags, data[end + 5 : end + 5 + size]))
        end += 5 + size
    assert end == len(data)
    return messages


def descriptor(method: str) -> MethodDescriptor | None:
    service, _, name = method[1:].partition("/")
    return descriptor_pool.Default().FindServiceByName(service).methods_by_name.get(name)


def response_type(method: str) -> type[Message]:
    found = descriptor(method)
    return message_factory.GetMessageClass(found.output_type) if found else status_pb2.Status


def is_stream(method: str) -> bool:
    found = descriptor(method)
    return found is not None and bool(found.client_streaming or found.server_streaming)


async def by_grpc(target: str, url: str, request: Request) -> Outcome:
    del url
    messages: list[Message] = []
    async with grpc.aio.insecure_channel(target) as channel:
        found = descriptor(request.method)
        several = found is not None and found.client_streaming
        method: Any = (channel.stream_stream if several else channel.unary_stream)(
            request.method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response_type(request.method).FromString,
        )
        call: Any = method(
            _each(request.messages) if several else request.messages[0],
            timeout=request.timeout,
            metadata=request.pairs,
        )
        with contextlib.suppress(grpc.aio.AioRpcError):
            while (message := await call.read()) is not grpc.aio.EOF:
                messages.append(message)
        initial = _joined(await call.initial_metadata())
        trailing = _joined(await call.trailing_metadata())
        status = status_pb2.Status.FromString(trailing.pop("grpc-status-details-bin", b""))
        code, details = await call.code(), await call.details()
    return Outcome(messages, code.name, details, _details(status), _text(trailing), initial)


def by_connect(*, as_json: bool) -> Protocol:
    async def call(target: str, url: str, request: Request) -> Outcome:
        del target
        stream = is_stream(request.method)
        kind = response_type(request.method)
        bodies = [
            json_format.MessageToJson(one).encode() if as_json else one.SerializeToString()
            for one in request.messages
        ]
        name = "json" if as_json else "proto"
        headers = CIMultiDict([*request.pairs, ("Connect-Protocol-Version", "1")])
        if request.compressed:
            headers["Connect-Content-Encoding" if stream else "Content-Encoding"] = "gzip"
        headers["Content-Type"] = f"application/{'connect+' if stream else ''}{name}"
        if request.timeout is not None:
            headers["Connect-Timeout-Ms"] = str(round(request.timeout * 1000))
        single = gzip.compress(bodies[0]) if request.compressed and bodies else b"".join(bodies)
        data = request.framed(bodies) if stream else single
        async with (
            aiohttp.ClientSession() as session,
            session.post(url + request.method, data=data, headers=headers) as response,
        ):
            body = await response.read()

        def read(data: bytes) -> Message:
            return json_format.Parse(data, kind()) if as_json else kind.FromString(data)

        initial = _joined((name.lower(), value) for name, value in response.headers.items())
        trailing = _joined(
            (name.removeprefix("Trailer-").lower(), value)
            for name, value in response.headers.items()
            if name.startswith("Trailer-")
        )
        if not stream:
            if response.status == 200:
                return Outcome([read(body)], "OK", "", [], trailing, initial)
            return _failed([], json.loads(body), trailing, initial)
        assert response.status == 200, body
        *frames, (flags, last) = opened(body)
        assert flags == END
        end = json.loads(last)
        trailing = {key: ", ".join(values) for key, values in end.get("metadata", {}).items()}
        messages = [read(data) for _, data in frames]
        if "error" in end:
            return _failed(messages, end["error"], trailing, initial)
        return Outcome(messages, "OK", "", [], trailing, initial)

    return call


def by_grpc_web(*, text: bool) -> Protocol:
    async def call(target: str, url: str, request: Request) -> Outcome:
        del target
        kind = response_type(request.method)
        data = request.framed([one.SerializeToString() for one in request.messages])
        headers = CIMultiDict([*request.pairs, ("X-Grpc-Web", "1")])
        if request.compressed:
            headers["Grpc-Encoding"] = "gzip"
        headers["Content-Type"] = f"application/grpc-web{'-text' if text else ''}+proto"
        if request.timeout is not None:
            headers["Grpc-Timeout"] = f"{round(request.timeout * 1000)}m"
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                url + request.method, data=base64.b64encode(data) if text else data, headers=headers
            ) as response,
        ):
            assert response.status == 200
            body = await response.read()
        if text:
            parts = [part for part in body.replace(b"=", b"= ").split(b" ") if part.strip(b"=")]
            padded = [part.rstrip(b"=") for part in parts]
            body = b"".join(base64.b64decode(part + b"=" * (-len(part) % 4)) for part in padded)
        *frames, (flags, last) = opened(body)
        assert flags == TRAILERS
        trailing = _joined(line.split(": ", 1) for line in last.decode().splitlines())
        encoded = trailing.pop("grpc-status-details-bin", "")
        status = status_pb2.Status.FromString(base64.b64decode(encoded + "=" * (-len(encoded) % 4)))
        code = CODES[int(trailing.pop("grpc-status"))]
        message = unquote(trailing.pop("grpc-message", ""))
        messages = [kind.FromString(data) for _, data in frames]
        initial = _joined((name.lower(), value) for name, value in response.headers.items())
        return Outcome(messages, code, message, _details(status), trailing, initial)

    return call


PROTOCOLS: Mapping[str, Protocol] = {
    "connect-json": by_connect(as_json=True),
    "connect-proto": by_connect(as_json=False),
    "grpc-web": by_grpc_web(text=False),
    "grpc-web-text": by_grpc_web(text=True),
}


async def _each(messages: Sequence[Message]) -> AsyncIterator[Any]:
    for message in messages:
        yield message


def _joined(pairs: Iterable[Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        values[key] = f"{values[key]}, {value}" if key in values else value
    return values


def _failed(
    messages: Sequence[Message],
    error: Mapping[str, Any],
    trailing: Mapping[str, str],
    initial: Mapping[str, str],
) -> Outcome:
    status = status_pb2.Status()
    for detail in error.get("details", ()):
        encoded = detail["value"]
        value = base64.b64decode(encoded + "=" * (-len(encoded) % 4))
        status.details.add(type_url=f"type.googleapis.com/{detail['type']}", value=value)
    code = "CANCELLED" if error["code"] == "canceled" else error["code"].upper()
    return Outcome(messages, code, error.get("message", ""), _details(status), trailing, initial)


def _details(status: status_pb2.Status) -> Sequence[Message]:
    found: list[Message] = []
    for detail in status.details:
        kind: Any = getattr(error_details_pb2, detail.type_url.rpartition(".")[2])
        found.append(kind.FromString(detail.value))
    return found


def _text(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    return {key: value for key, value in metadata.items() if isinstance(value, str)}
