from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.channel import open_channel
from dramaturg.service.context import Context
from dramaturg.service.contract import Answered
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.service.interceptors import chain
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import serve, until
from tests.support.auth import channel_of, holder, token_settings
from tests.support.grpc_servers import ARITIES, METHODS, arities, call_arity, synthesize_request

every_arity = pytest.mark.parametrize("method", [name for name, _, _ in METHODS])


class Turnstile:
    """Lets so many calls pass, and notes what they are and how they are answered."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.started: list[tuple[str, str]] = []
        self.turn = asyncio.Event()
        self.turn.set()
        self.passed: list[str] = []
        self.items: list[int] = []
        self.answers = 0
        self.within = 0

    async def start(self, method: str, tenant: str) -> None:
        self.started.append((method, tenant))
        await self.turn.wait()

    @asynccontextmanager
    async def passing(self, method: str, items: int, context: Context) -> AsyncIterator[Answered]:
        if not self.left:
            reason = error_reason_pb2.ERROR_REASON_QUOTA_EXHAUSTED
            raise ServiceError(grpc.StatusCode.RESOURCE_EXHAUSTED, reason, "no more", retry_after=7)
        self.left -= 1
        self.passed.append(method)
        self.items.append(items)
        self.within += 1
        try:
            yield self._answered
        finally:
            self.within -= 1

    def _answered(self, message: object) -> None:
        self.answers += 1


@every_arity
async def test_a_gate_encloses_calls_of_every_arity(method: str) -> None:
    gate, within = Turnstile(1), []

    async def work() -> None:
        within.append(gate.within)

    contract = replace(arities(work), gate=gate)
    async with serve(contract) as server, open_channel(server.target) as channel:
        count = await call_arity(channel, method, synthesize_request())
        await until(lambda: gate.within == 0)
        assert gate.passed == [f"/{ARITIES}/{method}"]
        assert gate.started == [(f"/{ARITIES}/{method}", "")]
        assert gate.items == [1]
        assert gate.answers == count
        assert within == [1]
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call_arity(channel, method, synthesize_request())
    error = from_rpc_error(raised.value)
    assert error.reason == error_reason_pb2.ERROR_REASON_QUOTA_EXHAUSTED
    assert error.retry_after == 7
    assert within == [1], "the call was served all the same"


@every_arity
async def test_a_call_waits_for_its_turn_before_its_request_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    gate, caller = Turnstile(1), holder("team-a", "operator")
    read: list[bytes] = []

    def noting(*args: Any) -> Callable[[bytes], Any]:
        parse = readable(*args)

        def note(data: bytes) -> Any:
            read.append(data)
            return parse(data)

        return note

    readable = chain._readable
    monkeypatch.setattr(chain, "_readable", noting)
    gate.turn.clear()
    contract = replace(arities(partial(asyncio.sleep, 0)), gate=gate, permission="evaluate")
    async with (
        Server([contract], ServerSettings.loopback(), token_settings(tmp_path, caller)) as server,
        channel_of(server.target, tmp_path, caller) as channel,
    ):
        call = asyncio.create_task(call_arity(channel, method, synthesize_request()))
        await until(lambda: bool(gate.started))
        assert not gate.passed
        assert not read
        gate.turn.set()
        await call
        assert gate.started == [(f"/{ARITIES}/{method}", "team-a")]
        assert gate.passed == [f"/{ARITIES}/{method}"]
        assert read


@every_arity
async def test_a_call_that_fails_leaves_the_gate(method: str) -> None:
    gate = Turnstile(1)

    async def fail() -> None:
        raise ValueError

    contract = replace(arities(fail), gate=gate)
    async with serve(contract) as server, open_channel(server.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await call_arity(channel, method, synthesize_request())
    assert gate.within == 0
