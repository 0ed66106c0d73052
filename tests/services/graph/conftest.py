"""A running graph service."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dramaturg.api.graph.v1 import graph_service_pb2_grpc as rpc
from dramaturg.service.channel import open_channel
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from services.graph.app import App, GraphSettings


@pytest.fixture
async def graph_service() -> AsyncIterator[rpc.GraphServiceAsyncStub]:
    settings = ServerSettings(port=0, drain_grace_seconds=1)
    app = App(settings=GraphSettings(solvers=1))
    async with (
        app.open() as contracts,
        Server(contracts, settings) as server,
        open_channel(server.target) as channel,
    ):
        yield rpc.GraphServiceStub(channel)
