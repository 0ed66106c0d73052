from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from dramaturg.service.auth.caller import current
from dramaturg.service.interceptors import limits
from dramaturg.service.server import Contract, Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import until
from tests.support.auth import channel_of, holder, token_settings
from tests.support.grpc_servers import arities, call_object, synthesize_request

GREEDY, OTHER = holder("team-a", "operator"), holder("team-b", "operator")
MOST = limits.MAX_RESPONSES_OF_TENANT


class Held:
    """Work that lasts until it is released; notes the tenants that it is done for."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.released = asyncio.Event()

    async def __call__(self) -> None:
        self.begun.append(current().tenant)
        await self.released.wait()


async def read(stream: Any) -> None:
    async for _ in stream:
        pass


def contract(work: Held) -> Contract:
    return replace(arities(work), permission="serve", large=frozenset({"UnaryUnary"}))


async def test_a_tenant_has_few_large_responses_at_once_and_delays_no_other(tmp_path: Path) -> None:
    work, auth = Held(), token_settings(tmp_path, GREEDY, OTHER)
    async with (
        Server([contract(work)], ServerSettings.loopback(), auth) as server,
        channel_of(server.target, tmp_path, GREEDY) as greedy,
        channel_of(server.target, tmp_path, OTHER) as other,
    ):
        calls = [call_object(greedy, "UnaryUnary", synthesize_request()) for _ in range(3 * MOST)]
        await until(lambda: len(work.begun) == MOST)
        calls.append(call_object(other, "UnaryUnary", synthesize_request()))
        await until(lambda: "team-b" in work.begun)
        # Other methods do not wait.
        streams = [call_object(greedy, "UnaryStream", synthesize_request()) for _ in range(2)]
        await until(lambda: len(work.begun) == MOST + 3)
        work.released.set()
        await asyncio.gather(*calls, *map(read, streams))
    assert len(work.begun) == 3 * MOST + 3


async def test_the_slot_of_a_call_that_is_cancelled_or_late_is_free_again(tmp_path: Path) -> None:
    work, auth = Held(), token_settings(tmp_path, GREEDY)
    async with (
        Server([contract(work)], ServerSettings.loopback(), auth) as server,
        channel_of(server.target, tmp_path, GREEDY) as greedy,
    ):
        calls = [call_object(greedy, "UnaryUnary", synthesize_request()) for _ in range(MOST)]
        await until(lambda: len(work.begun) == MOST)
        late = call_object(greedy, "UnaryUnary", synthesize_request(), timeout=0.3)
        assert await late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        for call in calls:
            call.cancel()
        work.released.set()
        await asyncio.gather(*(call_object(greedy, "UnaryUnary", synthesize_request()) for _ in range(MOST)))
    assert len(work.begun) == 2 * MOST
