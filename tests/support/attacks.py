"""Clients that mean no good, each a process: ``python -m tests.support.attacks NAME TARGET TOKEN``.

Prints how its calls ended, as a JSON object of counts.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc

from tests.support.grpc_servers import ARITIES, synthesize_request
from tests.support.hostile_target import WAIT

_SYNTHESIZE = "/dramaturg.api.agents.v1.SynthesizeService/Synthesize"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # and empty SETTINGS
_HELD_SECONDS = 5.0
_UNKNOWN_FIELD = b"\xfa\x01"  # number 31, with a length before it

Ends = Counter[str]


def _message(size: int) -> bytes:
    """A message of so many bytes, all of them zeros of a field that nobody knows."""
    length, encoded = size, b""
    while length > 127:
        encoded += bytes([length & 127 | 128])
        length >>= 7
    return _UNKNOWN_FIELD + encoded + bytes([length]) + bytes(size)


async def _ended(call: Any) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


def _channel(target: str, compression: grpc.Compression = grpc.Compression.NoCompression) -> grpc.aio.Channel:
    options = [("grpc.max_send_message_length", -1), ("grpc.enable_http_proxy", 0)]
    return grpc.aio.insecure_channel(target, compression=compression, options=options)


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()


async def connections(target: str, token: str) -> Ends:
    """2,000 connections; half of them say that they speak HTTP/2, the others nothing."""
    host, _, port = target.rpartition(":")
    ends: Ends = Counter()
    writers = []
    for number in range(2000):
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            ends["refused"] += 1
            continue
        if number % 2:
            writer.write(_PREFACE)
        writers.append(writer)
        ends["connected"] += 1
    await asyncio.sleep(_HELD_SECONDS)
    for writer in writers:
        writer.close()
    return ends


async def slow_streams(target: str, token: str) -> Ends:
    """200 endless streams whose client reads nothing."""
    async with _channel(target) as channel:
        method: Any = channel.unary_stream(
            f"/{ARITIES}/UnaryStream", request_serializer=lambda message: message.SerializeToString()
        )
        calls = [method(synthesize_request(), metadata=_metadata(token), timeout=60) for _ in range(200)]
        await asyncio.sleep(_HELD_SECONDS)
        ends = Counter([(await call.code()).name if call.done() else "open" for call in calls])
        for call in calls:
            call.cancel()
    return ends


async def _send(target: str, token: str, count: int, message: bytes, compression: grpc.Compression) -> Ends:
    async with _channel(target, compression) as channel:
        method: Any = channel.unary_unary(_SYNTHESIZE)
        calls = [_ended(method(message, metadata=_metadata(token), timeout=60)) for _ in range(count)]
        return Counter(await asyncio.gather(*calls))


async def large_messages(target: str, token: str) -> Ends:
    """Messages of 100 MB."""
    return await _send(target, token, 4, _message(100 << 20), grpc.Compression.NoCompression)


async def bombs(target: str, token: str) -> Ends:
    """Messages of 200 kB that inflate to 200 MB."""
    return await _send(target, token, 8, _message(200 << 20), grpc.Compression.Gzip)


async def small_bombs(target: str, token: str) -> Ends:
    """Messages of 15 kB that inflate to 15 MB, within the limit of a message: 400 at once."""
    packed = gzip.compress(_message(15 << 20))
    data = b"\x01" + len(packed).to_bytes(4, "big") + packed
    async with _open_calls(target, token, _SYNTHESIZE, data, 400, {"grpc-encoding": "gzip"}) as count:
        await asyncio.sleep(_HELD_SECONDS)
    return Counter({"sent": count})


@asynccontextmanager
async def silent_calls(
    target: str, token: str, method: str, message: bytes, count: int
) -> AsyncIterator[None]:
    """Calls whose client reads nothing, until the end of an ``async with`` block."""
    data = b"\x00" + len(message).to_bytes(4, "big") + message
    async with _open_calls(target, token, method, data, count):
        yield


@asynccontextmanager
async def _open_calls(
    target: str, token: str, method: str, data: bytes, count: int, encoding: Mapping[str, str] | None = None
) -> AsyncIterator[int]:
    """Sends the requests of calls; yields how many. Reads nothing."""
    host, _, port = target.rpartition(":")
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": target,
        "content-type": "application/grpc",
        "te": "trailers",
        **(encoding or {}),
        **dict(_metadata(token)),
    }
    headers = b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields.items())
    # As many on a connection as its first window lets through (RFC 9113, section 6.9.2).
    streams = [_frame(1, 4, stream, headers) + _frame(0, 1, stream, data) for stream in (1, 3, 5, 7)]
    writers = []
    for _ in range(count // len(streams)):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(_PREFACE + b"".join(streams))
        writers.append(writer)
    try:
        yield len(writers) * len(streams)
    finally:
        for writer in writers:
            writer.close()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _text(text: str) -> bytes:
    """A text of up to 126 bytes in a header (RFC 7541, section 5.2)."""
    return bytes([len(text)]) + text.encode()


async def flood(target: str, token: str) -> Ends:
    """5,000 calls at once, each of which takes a second."""
    message = synthesize_request(goal=WAIT).SerializeToString()
    return await _send(target, token, 5000, message, grpc.Compression.NoCompression)


ATTACKS: Mapping[str, Callable[[str, str], Awaitable[Ends]]] = {
    attack.__name__: attack
    for attack in (connections, slow_streams, large_messages, bombs, small_bombs, flood)
}
"""The attacks by name: each is given a target and a token, which may be empty."""


async def _main() -> None:
    name, target, token = sys.argv[1:]
    sys.stdout.write(json.dumps(await ATTACKS[name](target, token)))


if __name__ == "__main__":
    asyncio.run(_main())
