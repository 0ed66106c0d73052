"""The API over HTTP, hostile: no internal error, bounded time and memory, and other tenants are served."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import gzip
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor

from dramaturg.api.evaluation.v1.evaluation_service_pb2 import DESCRIPTOR as EVALUATION
from gateway.http.bodies import JsonCodec, UnreadableMessageError
from gateway.http.settings import HttpSettings
from tests.hostile.gateway import HOSTILE, PublicGateway, public_gateway, public_methods, watched
from tests.hostile.requests import mutations
from tests.hostile.test_requests import MAX_MESSAGE_BYTES, resident_mb
from tests.support.auth import path
from tests.support.fleet import report
from tests.support.growth import faster_than_linear
from tests.support.http_api import PROTOCOLS, Request, envelope

METHODS = {f"{one.containing_service.name}.{one.name}": one for one in public_methods()}
DEFECTS = frozenset({"INTERNAL", "UNKNOWN", "DATA_LOSS"})
SHORT_FORM = 211
"""The short form sends one of this number of hostile requests, each method in one protocol."""
AT_ONCE = 8
BODY_SECONDS = 1.0
DROP_SECONDS = 0.5
KEPT_MB = 16
"""The most that a further pass over the same bodies may add to the memory."""
ROUNDS = 4
"""The further passes."""
TOKEN = {"Authorization": f"Bearer {HOSTILE.token}"}
LIST = "/dramaturg.api.evaluation.v1.RunService/ListRuns"
SUMMARIZE = "/dramaturg.api.evaluation.v1.EvaluationService/Summarize"
JSON, PROTO, WEB, TEXT = (
    "application/json",
    "application/proto",
    "application/grpc-web+proto",
    "application/grpc-web-text",
)
STREAM_JSON, STREAM_PROTO = "application/connect+json", "application/connect+proto"
BOMB = gzip.compress(bytes(64 << 20))

INTERNAL = "compression without an encoding"
"""The damage for which the protocols demand the code INTERNAL."""
DAMAGED: Mapping[str, tuple[str, str, bytes, Mapping[str, str]]] = {
    "no body": (LIST, JSON, b"", {}),
    "no object": (LIST, JSON, b"[]", {}),
    "deep objects": (LIST, JSON, b'{"a":' * 200_000, {}),
    "deep lists": (LIST, JSON, b'{"a":' + b"[" * 1_000_000, {}),
    "a long number": (LIST, JSON, b'{"pageSize":' + b"1" * 1_000_000 + b"}", {}),
    "a number beyond every type": (LIST, JSON, b'{"pageSize":1e400}', {}),
    "no number": (LIST, JSON, b'{"pageSize":NaN}', {}),
    "a lone surrogate": (LIST, JSON, b'{"pageToken":"\\ud800"}', {}),
    "bytes that are not UTF-8": (LIST, JSON, b'{"pageToken":"\xff"}', {}),
    "a field twice": (LIST, JSON, b'{"pageSize":1,"pageSize":2}', {}),
    "a million fields": (LIST, JSON, b"{" + b'"a":1,' * 1_000_000 + b'"b":1}', {}),
    "JSON in UTF-16": (LIST, JSON, "{}".encode("utf-16"), {}),
    "no message": (LIST, PROTO, b"\xff" * 1000, {}),
    "a bomb": (LIST, PROTO, BOMB, {"Content-Encoding": "gzip"}),
    "no gzip": (LIST, PROTO, b"x" * 1000, {"Content-Encoding": "gzip"}),
    "half a gzip": (LIST, PROTO, gzip.compress(b"x" * 1000)[:-9], {"Content-Encoding": "gzip"}),
    "two members of gzip": (LIST, PROTO, gzip.compress(b"") * 2, {"Content-Encoding": "gzip"}),
    "another encoding": (LIST, PROTO, b"x", {"Content-Encoding": "br"}),
    "a body above the limit": (LIST, PROTO, bytes(MAX_MESSAGE_BYTES + 1), {}),
    "five million samples": (
        SUMMARIZE,
        STREAM_JSON,
        envelope(b'{"samples":[' + b"{}," * 5_000_000 + b"{}]}"),
        {},
    ),
    "half an envelope": (SUMMARIZE, STREAM_PROTO, b"\x00\x00", {}),
    "an envelope without its message": (SUMMARIZE, STREAM_PROTO, b"\x00\x00\x00\x10\x00", {}),
    "an envelope of 4 GiB": (SUMMARIZE, STREAM_PROTO, b"\x00\xff\xff\xff\xff", {}),
    "unknown flags": (SUMMARIZE, STREAM_JSON, envelope(b"{}", 0x7C), {}),
    INTERNAL: (SUMMARIZE, STREAM_PROTO, envelope(BOMB, 1), {}),
    "a bomb in an envelope": (
        SUMMARIZE,
        STREAM_PROTO,
        envelope(BOMB, 1),
        {"Connect-Content-Encoding": "gzip"},
    ),
    "a million empty messages": (SUMMARIZE, STREAM_PROTO, envelope(b"") * 1_000_000, {}),
    "no envelope": (LIST, WEB, b"abc", {}),
    "two messages": (LIST, WEB, envelope(b"") * 2, {}),
    "an envelope of 4 GiB in gRPC-web": (LIST, WEB, b"\x00\xff\xff\xff\xff", {}),
    "no base64": (LIST, TEXT, b"=" * 100_000, {}),
    "padding everywhere": (LIST, TEXT, b"AA==" * 100_000, {}),
    "a wrong timeout": (LIST, JSON, b"{}", {"Connect-Timeout-Ms": "9" * 100}),
    "a wrong version": (LIST, JSON, b"{}", {"Connect-Protocol-Version": "2"}),
    "no base64 in a header": (LIST, JSON, b"{}", {"X-A-Bin": "?"}),
    "another peer": (LIST, JSON, b"{}", {"X-Dramaturg-Peer": "ipv4:1.2.3.4:5"}),
}
"""The method, the content type, the body and headers of requests. None fails by itself."""

RAW: Mapping[str, bytes] = {
    "headers of a megabyte": b"POST / HTTP/1.1\r\nHost: a\r\nX-A: " + b"a" * (1 << 20) + b"\r\n\r\n",
    "a hundred thousand headers": b"POST / HTTP/1.1\r\nHost: a\r\n" + b"X-A: a\r\n" * 100_000 + b"\r\n",
    "an address of a megabyte": b"POST /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "both lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "a negative length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    "a huge chunk": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n",
    "HTTP/2 without TLS": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no HTTP": bytes(range(256)) * 100,
    "a TLS handshake": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
}


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[PublicGateway, list[str]]]:
    """A gateway over HTTP, and the failures of another tenant meanwhile."""
    settings = HttpSettings(body_timeout_seconds=BODY_SECONDS)
    async with public_gateway(folder, settings) as gateway, watched(gateway.good) as failures:
        yield gateway, failures


def hostile_requests(
    gateway: PublicGateway, methods: Sequence[MethodDescriptor], one_of: int
) -> Iterator[tuple[str, MethodDescriptor, str, Any]]:
    for offset, protocol in enumerate(PROTOCOLS):
        for method in methods if one_of == 1 else methods[offset :: len(PROTOCOLS)]:
            for mutation in mutations(gateway.request(method), one_of=one_of):
                if mutation.request.ByteSize() < MAX_MESSAGE_BYTES // 4:
                    yield protocol, method, f"{mutation.field}: {mutation.label}", mutation.request


async def send_all(gateway: PublicGateway, one_of: int) -> tuple[int, list[str]]:
    """Sends requests in each protocol; returns their number and the internal errors."""
    waiting = hostile_requests(gateway, [*METHODS.values()], one_of)
    defects: list[str] = []
    sent = 0

    async def work() -> None:
        nonlocal sent
        for protocol, method, label, message in waiting:
            metadata = {"authorization": f"Bearer {HOSTILE.token}"}
            if method.name == "Judge":
                metadata["dramaturg-role"] = "critic"
            request = Request(path(method), [message], metadata)
            try:
                outcome = await PROTOCOLS[protocol](gateway.target, gateway.url, request)
            # The client's own library cannot write the message as JSON.
            except (ValueError, json_format.SerializeToJsonError):
                continue
            sent += 1
            if outcome.code in DEFECTS:
                defects.append(f"{protocol} {method.name}: {label}: {outcome.code}: {outcome.message}")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return sent, defects


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_no_field_breaks_a_method_in_any_protocol(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, failures):
        sent, defects = await send_all(gateway, SHORT_FORM)
        report(requests=sent, defects=len(defects))
    assert sent > 60
    assert not defects
    assert not failures


@pytest.mark.endurance
@pytest.mark.timeout(3600)
async def test_no_value_of_a_field_breaks_a_method_in_any_protocol(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, failures):
        sent, defects = await send_all(gateway, 1)
        report(requests=sent, defects=len(defects))
    assert not defects
    assert not failures


async def post(
    url: str, method: str, kind: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.post(
            url + method, data=body, headers={**TOKEN, "Content-Type": kind, **headers}, compress=None
        ) as response,
    ):
        return response.status, await response.read()


def kept_mb() -> float:
    """The memory of this process without what is free."""
    gc.collect()
    with suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    return resident_mb()


@pytest.mark.slow
async def test_damaged_bodies_are_answered_and_do_not_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The rest of a refused stream of a million messages is dropped until this time ends.
    monkeypatch.setattr("dramaturg.service.interceptors.chain.MAX_SECONDS", DROP_SECONDS)
    wrong = []
    async with serving(tmp_path) as (gateway, failures):

        async def send_each() -> None:
            for label, (method, kind, body, headers) in DAMAGED.items():
                begun = time.monotonic()
                try:
                    status, answer = await post(gateway.url, method, kind, body, headers)
                except aiohttp.ClientError as error:  # refused while it was sent
                    status, answer = 0, str(error).encode()
                # 501 is the status of UNIMPLEMENTED.
                internal = b'"internal"' in answer or b"grpc-status: 13" in answer
                if (status >= 500 and status != 501) or internal != (label == INTERNAL):
                    wrong.append(f"{label}: {status}: {answer[:200]!r}")
                if time.monotonic() - begun > 20:
                    wrong.append(f"{label}: {time.monotonic() - begun:.1f} s")

        await send_each()
        kept = [kept_mb()]
        for _ in range(ROUNDS):
            await send_each()
            kept.append(kept_mb())
        # What a pass leaves in memory adds up with each pass. What the allocator holds once does not.
        growth = median(after - before for before, after in pairwise(kept))
        report(growth_mb=growth)
    assert not wrong
    assert not failures
    assert growth < KEPT_MB


async def raw(url: str, data: bytes) -> bytes:
    """The answer to bytes, up to the end of the connection or half a second of silence."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    answer = b""
    with suppress(OSError, TimeoutError):
        writer.write(data)
        await asyncio.wait_for(writer.drain(), 5)
        while part := await asyncio.wait_for(reader.read(1 << 16), 0.5):
            answer += part
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return answer


async def test_what_is_no_request_is_refused(tmp_path: Path) -> None:
    wrong = []
    async with serving(tmp_path) as (gateway, failures):
        for label, data in RAW.items():
            answer = await raw(gateway.url, data)
            if answer and not answer.split()[1].startswith(b"4"):
                wrong.append(f"{label}: {answer[:100]!r}")
        for method, expected in (("GET", 405), ("PUT", 405), ("TRACE", 405), ("OPTIONS", 405)):
            async with (
                aiohttp.ClientSession() as session,
                session.request(method, gateway.url + LIST) as refused,
            ):
                assert refused.status == expected
        for kind in (
            "text/plain",
            "application/grpc",
            "multipart/form-data; boundary=a",
            "",
            JSON + "/" * 5000,
        ):
            status, _ = await post(gateway.url, LIST, kind, b"{}", {})
            assert status == 415
        for name in ("http://app.example", "null", "http://localhost", gateway.url, "a" * 5000):
            status, body = await post(gateway.url, LIST, JSON, b"{}", {"Origin": name})
            assert (status, json.loads(body)["code"]) == (403, "permission_denied")
        for address in (
            "//a",
            "/../../etc/passwd",
            LIST + "/",
            LIST + "?a=b%00",
            "/grpc.health.v1.Health/Check",
        ):
            status, _ = await post(gateway.url, address, JSON, b"{}", {})
            assert status in (200, 400, 404, 415, 501), address
    assert not wrong
    assert not failures


Connection = Callable[[asyncio.StreamWriter], None]
HEAD = (
    f"POST {LIST} HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\nAuthorization: {TOKEN['Authorization']}\r\n"
)
SLOW: Mapping[str, bytes] = {
    "silent": b"",
    "half a header": HEAD[:-10].encode(),
    "no body": f"{HEAD}Content-Length: 100\r\n\r\n".encode(),
    "half a body": f"{HEAD}Content-Length: 100\r\n\r\n{{".encode(),
    "half a chunk": f"{HEAD}Transfer-Encoding: chunked\r\n\r\n100\r\n{{".encode(),
}
COUNT = 200
"""The slow connections of each kind."""
CONNECTION_KB = 100
"""The most memory that one takes."""


@pytest.mark.timeout(60)
async def test_slow_connections_take_little_memory_and_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as (gateway, failures):
        address = urlsplit(gateway.url)
        assert (await post(gateway.url, LIST, JSON, b"{}", {}))[0] == 200
        grown = []
        opened: list[tuple[str, asyncio.StreamReader, asyncio.StreamWriter]] = []
        for label, data in SLOW.items():
            before = resident_mb()
            for _ in range(COUNT):
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
                writer.write(data)
                opened.append((label, reader, writer))
            grown.append((label, resident_mb() - before))
        begun = time.monotonic()
        assert (await post(gateway.url, LIST, JSON, b"{}", {}))[0] == 200
        honest = time.monotonic() - begun
        # Those with a body that does not arrive are answered when its time is over.
        late = [reader for label, reader, _ in opened if "body" in label or "chunk" in label]
        answers = await asyncio.wait_for(asyncio.gather(*(reader.readline() for reader in late)), 30)
        for _, _, writer in opened:
            writer.close()
    report(growth_mb={label: round(mb, 1) for label, mb in grown}, honest_ms=round(honest * 1000))
    assert {answer.split()[1] for answer in answers} <= {b"408", b"504"}
    # The connections have both of their ends in this process.
    assert sum(mb for _, mb in grown) * 1024 < CONNECTION_KB * COUNT * len(SLOW)
    assert not failures


ADVERSARIAL: Mapping[str, Callable[[int], bytes]] = {
    "deep objects": lambda size: b'{"options":' * (size // 11),
    "deep lists": lambda size: b'{"samples":' + b"[" * size,
    "long numbers": lambda size: b'{"samples":[' + b"1" * size + b"]}",
    "many fields": lambda size: b"{" + b'"a":1,' * (size // 6) + b'"b":1}',
    "many samples": lambda size: b'{"samples":[' + b"{}," * (size // 3) + b"{}]}",
    "escapes": lambda size: b'{"a":"' + b"\\u0000" * (size // 6) + b'"}',
    "quotes": lambda size: b'{"a":"' + b'\\"' * (size // 2),
    "spaces": lambda size: b" " * size + b"{}" + b" " * size,
    "an unknown field of a long name": lambda size: b'{"' + b"a" * size + b'":1}',
    "a long text of an enum": lambda size: b'{"samples":[{"state":"' + b"A" * size + b'"}]}',
    "a long time": lambda size: b'{"samples":[{"updateTime":"' + b"1" * size + b'"}]}',
}
SIZE = 100_000


@pytest.mark.parametrize("form", ADVERSARIAL.values(), ids=ADVERSARIAL)
def test_the_time_to_read_json_grows_with_its_length(
    form: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http.bodies.LARGE_BYTES", 1 << 30)  # its time is that of this thread
    codec = JsonCodec(EVALUATION.services_by_name["EvaluationService"].methods_by_name["Summarize"])

    def read(data: bytes) -> None:
        with suppress(UnreadableMessageError):
            asyncio.run(codec.decode(data))

    assert faster_than_linear(partial(read, form(SIZE)), partial(read, form(2 * SIZE))) is None
