"""Requests that break HTTP or gRPC: what a real gateway says and logs of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import ListJudgesRequest
from dramaturg.api.evaluation.v1.judge_directory_service_pb2_grpc import JudgeDirectoryServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.service.logs import REFUSALS_A_SECOND
from dramaturg.service.settings import ChannelSettings
from tests.support.auth import holder, write_tokens
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.processes import ServiceProcess

SECRET = "pl4nted-bearer-0123456789"
CALLER = holder("team-a", "evaluator")
HEAD = b"POST /dramaturg.api.evaluation.v1.JudgeDirectoryService/ListJudges HTTP/1.1\r\nHost: a\r\n"
AUTHORIZED = b"Authorization: Bearer " + SECRET.encode()
CHUNKED = HEAD + AUTHORIZED + b"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
FORM = (
    b"POST /console/sign-in HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
)
KNOWN = b"Authorization: Bearer " + CALLER.token.encode()

MALFORMED: Mapping[str, bytes] = {
    "lines that end with LF": (HEAD + AUTHORIZED).replace(b"\r\n", b"\n") + b"\n\n",
    "lines that end with CR": (HEAD + AUTHORIZED).replace(b"\r\n", b"\r") + b"\r\r",
    "a blank before the colon": HEAD + AUTHORIZED.replace(b":", b" :") + b"\r\n\r\n",
    "a header without a colon": HEAD + AUTHORIZED.replace(b":", b"") + b"\r\n\r\n",
    "a header that continues": HEAD + AUTHORIZED.replace(b": ", b":\r\n ") + b"\r\n\r\n",
    "a control character": HEAD + AUTHORIZED + b"\x01\r\n\r\n",
    "a long header": HEAD + AUTHORIZED * 400 + b"\r\n\r\n",
    "many headers": HEAD + (AUTHORIZED + b"\r\n") * 200 + b"\r\n",
    "a length that is no number": HEAD + b"Content-Length: " + SECRET.encode() + b"\r\n\r\n",
    "a chunk size that is no number": CHUNKED + SECRET.encode() + b"\r\n",
    "a chunk that is too long": CHUNKED + b"2\r\n" + SECRET.encode() + b"\r\n",
    "a form in a bad chunk": FORM + b"token=" + SECRET.encode() + b"\r\n",
    "a known caller's bad chunk": CHUNKED.replace(AUTHORIZED, KNOWN) + b"2\r\n" + SECRET.encode() + b"\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SECRET.encode(),
    "a token in place of a method": SECRET.encode() + b"\x00 / HTTP/1.1\r\n\r\n",
    "a token in place of a version": b"GET / HTTP/" + SECRET.encode() + b"\r\n\r\n",
    "a token in a bad address": b"GET http://[::1" + SECRET.encode() + b"/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "a token in a long path": b"GET /" + SECRET.encode() * 500 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "a token in an unknown method": HEAD.replace(b"ListJudges", SECRET.encode())
    + b"Content-Type: application/json\r\nConnect-Protocol-Version: x\r\nContent-Length: 0\r\n\r\n",
    "line ends in a path of the console": b"GET /console/%0d%0a"
    + SECRET.encode()
    + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00" + SECRET.encode(),
}
"""What is sent, by its fault."""


@dataclass(frozen=True)
class Gateway:
    """A gateway in a process of its own."""

    process: ServiceProcess
    http_port: int
    audit: Path

    def lines(self) -> list[dict[str, Any]]:
        """The log; every line is JSON."""
        return [json.loads(line) for line in self.process.log.read_text().splitlines()]

    async def settled(self) -> list[dict[str, Any]]:
        """The log once the records that were dropped are counted in it."""
        begun = time.monotonic()
        while not any("dropped" in line for line in self.lines()):
            assert time.monotonic() - begun < 10
            await asyncio.sleep(0.05)
        return self.lines()


@asynccontextmanager
async def gateway(folder: Path, **variables: str) -> AsyncIterator[Gateway]:
    port = free_port()
    environment = {
        "DRAMATURG_SERVER_LOG_LEVEL": "DEBUG",
        "DRAMATURG_SERVER_DRAIN_GRACE_SECONDS": "0.2",
        "DRAMATURG_AUTH_TOKENS_FILE": str(write_tokens(folder, CALLER)),
        "DRAMATURG_AUTH_AUDIT": str(folder / "audit.jsonl"),
        "DRAMATURG_GATEWAY_HTTP__PORT": str(port),
        **variables,
    }

    def connect(target: str) -> grpc.aio.Channel:
        return open_channel(target, ChannelSettings.model_validate({"tls_ca_file": variables.get("CA")}))

    process = ServiceProcess("gateway", folder, environment, connect=connect)
    await process.start()
    try:
        yield Gateway(process, port, folder / "audit.jsonl")
    finally:
        await process.stop()


async def exchange(port: int, data: bytes, seconds: float = 5) -> bytes:
    """What a server answers before it closes the connection, or within some seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    try:
        writer.write(data)
        async with asyncio.timeout(seconds):
            while part := await reader.read(65_536):
                received += part
                if b"\r\n\r\n" in received:
                    break
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    return received


@pytest.mark.slow
async def test_neither_answers_nor_logs_quote_a_request_that_cannot_be_read(tmp_path: Path) -> None:
    async with gateway(tmp_path) as served:
        for fault, data in MALFORMED.items():
            answer = await exchange(served.http_port, data)
            assert answer.startswith((b"HTTP/1.0 4", b"HTTP/1.1 4", b"HTTP/1.1 303")), fault
            assert b"INTERNAL" not in answer
            assert (fault, SECRET.encode() in answer.partition(b"Location:")[0]) == (fault, False)
            assert b"aiohttp" not in answer
        grpc_port = int(served.process.target.rpartition(":")[2])
        for data in MALFORMED.values():
            assert SECRET.encode() not in await exchange(grpc_port, data, seconds=0.2)
        async with grpc.aio.insecure_channel(served.process.target) as channel:
            method: Any = channel.unary_unary(f"/{SECRET}/{SECRET}", request_serializer=lambda data: data)
            for metadata in (
                [("authorization", f"Bearer {SECRET}")],
                [("authorization", f"Basic {SECRET}")],
                [("authorization", "Bearer a"), ("authorization", SECRET)],
                [("x-api-key", SECRET), ("x-request-id", f"{SECRET} x")],
            ):
                with pytest.raises(grpc.aio.AioRpcError):
                    await method(b"", metadata=metadata)
            known = [("authorization", f"Bearer {CALLER.token}"), ("x-dramaturg-tenant", SECRET)]
            await JudgeDirectoryServiceStub(channel).ListJudges(ListJudgesRequest(), metadata=known)
        lines = await served.settled()
        audit = served.audit.read_text()
    log = served.process.log.read_text()
    assert "malformed request" in {line["message"] for line in lines}
    assert "UNAUTHENTICATED" in audit
    assert SECRET not in log
    assert CALLER.token not in log
    assert SECRET not in audit
    assert "Unhandled" not in log
    assert not [line for line in lines if line["level"] == "ERROR"]


@pytest.mark.slow
async def test_callers_without_an_identity_cannot_fill_the_log(tmp_path: Path) -> None:
    async with gateway(tmp_path) as served:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        requests = (exchange(served.http_port, MALFORMED["lines that end with LF"]) for _ in range(200))
        await asyncio.gather(*requests)
        async with grpc.aio.insecure_channel(served.process.target) as channel:
            judges = JudgeDirectoryServiceStub(channel)
            wrong = [("authorization", f"Bearer {SECRET}")]
            calls = (judges.ListJudges(ListJudgesRequest(), metadata=wrong) for _ in range(200))
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert {one.code() for one in ended if isinstance(one, grpc.aio.AioRpcError)} == {
                grpc.StatusCode.UNAUTHENTICATED
            }
            await judges.ListJudges(
                ListJudgesRequest(), metadata=[("authorization", f"Bearer {CALLER.token}")]
            )
        seconds = int(loop.time() - begun) + 2
        sources = ("gateway.http.connections", "dramaturg.access", "dramaturg.service.auth.guard")

        def counted() -> dict[str, int]:
            return {
                source: sum(line.get("dropped", 1) for line in served.lines() if line["logger"] == source)
                for source in sources
            }

        expected = dict(zip(sources, (200, 201, 200), strict=True))
        while (found := counted()) != expected:
            assert loop.time() - begun < 30, found
            await asyncio.sleep(0.05)
        lines = served.lines()
        for source in sources:
            assert sum(line["logger"] == source for line in lines) <= (REFUSALS_A_SECOND + 1) * seconds + 1
        audit = [json.loads(line) for line in served.audit.read_text().splitlines()]
        assert sum(line.get("dropped", 1) for line in audit) == 200
        assert len(audit) <= (REFUSALS_A_SECOND + 1) * seconds


@pytest.mark.slow
async def test_connections_without_tls_write_no_line_beside_the_log(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    issued = authority.issue("localhost")
    variables = {
        "DRAMATURG_SERVER_TLS_CERTIFICATE_FILE": str(issued.certificate),
        "DRAMATURG_SERVER_TLS_PRIVATE_KEY_FILE": str(issued.private_key),
        "CA": str(authority.certificate),
    }
    async with gateway(tmp_path, **variables) as served:
        ports = served.http_port, int(served.process.target.rpartition(":")[2])
        for port in ports:
            for data in MALFORMED.values():
                assert SECRET.encode() not in await exchange(port, data, seconds=0.3)
        lines = served.lines()
    assert not [line for line in lines if line["level"] in {"WARNING", "ERROR"}]
    assert SECRET not in served.process.log.read_text()
