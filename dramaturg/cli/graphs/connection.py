"""Reaches the graph service: a running one, or one started in this process for the length of a command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dramaturg.api.graph.v1 import graph_service_pb2_grpc as rpc
from dramaturg.cli.local import service_channel


@asynccontextmanager
async def graph_service(target: str | None) -> AsyncIterator[rpc.GraphServiceAsyncStub]:
    """A stub of the graph service.

    Args:
        target: Where it runs; ``None`` starts one here.

    Raises:
        UsageError: There is none to be started.
    """
    async with service_channel("graph", target) as channel:
        yield rpc.GraphServiceStub(channel)
