"""A gateway that tells tenants apart, whose judges are functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from gateway.app import App
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings
from tests.support.auth import Holder, channel_of, token_settings
from tests.support.engines import judges_of
from tests.support.gateway import Fake


@asynccontextmanager
async def gateway_of_tenants(
    folder: Path, callers: Sequence[Holder], fakes: Sequence[Fake], runs: RunsSettings, **settings: Any
) -> AsyncIterator[Sequence[grpc.aio.Channel]]:
    """A channel to the gateway for each caller."""
    async with AsyncExitStack() as stack:
        judges = tuple(await stack.enter_async_context(judges_of(fakes)))
        app = App(GatewaySettings(judges=judges, **settings), runs)
        contracts = await stack.enter_async_context(app.open())
        serving = ServerSettings.loopback(drain_grace_seconds=0.2)
        server = await stack.enter_async_context(Server(contracts, serving, token_settings(folder, *callers)))
        yield [
            await stack.enter_async_context(channel_of(server.target, folder, caller)) for caller in callers
        ]
