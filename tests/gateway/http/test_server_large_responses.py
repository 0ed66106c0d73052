"""A caller that does not read large answers over HTTP is given few of them, and no other tenant waits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest
from dramaturg.service.auth.caller import current
from dramaturg.service.contract import Contract
from dramaturg.service.interceptors.limits import MAX_RESPONSES_OF_TENANT
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import until
from gateway.http.server import HttpServer
from gateway.http.settings import HttpSettings
from tests.support.auth import Holder, holder, token_settings
from tests.support.grpc_servers import ARITIES, arities, synthesize_request

GREEDY, OTHER = holder("team-a", "operator"), holder("team-b", "operator")
PATH = f"/{ARITIES}/UnaryUnary"
TEXT = "x" * (24 << 20)
"""More than the buffers of a connection."""


class Large:
    """Gives large answers, and notes the tenants that asked."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    async def UnaryUnary(self, request: SynthesizeRequest, context: Any) -> SynthesizeRequest:
        self.begun.append(current().tenant)
        return synthesize_request(goal=TEXT if current().tenant == GREEDY.tenant else "small")

    def contract(self) -> Contract:
        async def nothing() -> None:
            pass

        def add(_: Any, server: grpc.aio.Server) -> None:
            handler = grpc.unary_unary_rpc_method_handler(
                self.UnaryUnary, SynthesizeRequest.FromString, SynthesizeRequest.SerializeToString
            )
            server.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler(ARITIES, {"UnaryUnary": handler})]
            )

        return replace(arities(nothing), add=add, permission="serve", large=frozenset({"UnaryUnary"}))


def headers(who: Holder) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {who.token}", "Content-Type": "application/proto"}


async def ask(port: int, who: Holder) -> asyncio.StreamWriter:
    """Sends a request whose answer is not read."""
    silent = socket.socket()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    silent.setblocking(False)
    await asyncio.get_running_loop().sock_connect(silent, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=silent, limit=4096)
    del reader
    body = synthesize_request().SerializeToString()
    fields = {**headers(who), "Host": "localhost", "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"POST {PATH} HTTP/1.1\r\n{head}\r\n".encode() + body)
    return writer


async def test_answers_that_are_not_read_keep_their_slots(tmp_path: Path) -> None:
    large, front = Large(), HttpServer(HttpSettings(), 0)
    auth = token_settings(tmp_path, GREEDY, OTHER)
    async with (
        Server([large.contract()], ServerSettings.loopback(), auth, fronts=[front]),
        aiohttp.ClientSession() as client,
    ):

        async def served(who: Holder) -> None:
            body = synthesize_request().SerializeToString()
            async with client.post(f"{front.url}{PATH}", data=body, headers=headers(who)) as answer:
                assert answer.status == 200

        port = int(front.url.rpartition(":")[2])
        writers = [await ask(port, GREEDY) for _ in range(3 * MAX_RESPONSES_OF_TENANT)]
        await until(lambda: len(large.begun) == MAX_RESPONSES_OF_TENANT)
        for _ in range(10):
            await served(OTHER)
        assert large.begun.count(GREEDY.tenant) == MAX_RESPONSES_OF_TENANT
        for writer in writers[:MAX_RESPONSES_OF_TENANT]:
            writer.transport.abort()
        await until(lambda: large.begun.count(GREEDY.tenant) == 2 * MAX_RESPONSES_OF_TENANT)
        for writer in writers:
            writer.transport.abort()
