"""A server that drains, and clients that know it alone of the replicas behind a name."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.service import channel as channels
from dramaturg.service.channel import open_channel
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import until
from tests.support.grpc_servers import synthesize_request, synthesizer
from tests.support.name_server import name_server

KNOWN, *OTHERS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
DRAIN_SECONDS = 4.0
"""Longer than the attempts of a call."""


async def test_a_client_that_knows_one_replica_alone_loses_no_call_when_it_drains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It learns of the others when its connection ends, and knows no other address until then."""
    # The last lookup is long ago.
    monkeypatch.setattr(channels, "LOOKUP_SECONDS", 1)
    served: Counter[str] = Counter()
    stopped = asyncio.Event()

    def replica(host: str, port: int, drain_seconds: float) -> Server:
        async def work(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
            await asyncio.sleep(0.005)
            served[host] += 1
            return SynthesizeResponse()

        settings = ServerSettings(host=host, port=port, drain_delay_seconds=drain_seconds)
        return Server([synthesizer(work)], settings)

    async def call_on(stub: Any) -> None:
        while not stopped.is_set():
            await stub.Synthesize(synthesize_request(), timeout=30)

    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(KNOWN))
        known = replica(KNOWN, 0, DRAIN_SECONDS)
        await known.start()
        channel = await stack.enter_async_context(open_channel(names.target(known.port)))
        calls = asyncio.gather(*(call_on(SynthesizeServiceStub(channel)) for _ in range(8)))
        await until(lambda: served[KNOWN] > 0 or calls.done())
        others = [replica(host, known.port, 0) for host in OTHERS]
        for one in others:
            await one.start()
        names.addresses = [KNOWN, *OTHERS]
        draining = asyncio.create_task(known.drain())
        await until(lambda: draining.done() or calls.done(), 30)
        names.addresses = list(OTHERS)
        await until(lambda: all(served[host] for host in OTHERS) or calls.done(), 30)
        stopped.set()
        await calls
        await draining
        await asyncio.gather(*(one.drain() for one in others))
