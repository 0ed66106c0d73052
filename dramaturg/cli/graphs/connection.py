"""Reaches the graph service: a running one, or one started in this process for the length of a command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import entry_points

from dramaturg.api.graph.v1 import graph_service_pb2_grpc as rpc
from dramaturg.cli.platform import UsageError
from dramaturg.service.app import App
from dramaturg.service.channel import open_channel
from dramaturg.service.server import Server
from dramaturg.service.settings import ChannelSettings, ServerSettings

# Within one process there is nothing to encrypt, whatever certificates the environment names.
_LOOPBACK = ServerSettings.model_construct(host="127.0.0.1", port=0)
_PLAIN = ChannelSettings.model_construct()


@asynccontextmanager
async def graph_service(target: str | None) -> AsyncIterator[rpc.GraphServiceAsyncStub]:
    """A stub of the graph service.

    Args:
        target: Where it runs; ``None`` starts one here.

    Raises:
        UsageError: There is none to be started.
    """
    async with AsyncExitStack() as stack:
        if target is None:
            contracts = await stack.enter_async_context(_local_app().open())
            target = (await stack.enter_async_context(Server(contracts, _LOOPBACK))).target
            channel = open_channel(target, _PLAIN)
        else:
            channel = open_channel(target)
        yield rpc.GraphServiceStub(await stack.enter_async_context(channel))


def _local_app() -> App:
    # By name only: the wheel with this command does not hold the services.
    for entry in entry_points(group="dramaturg.services", name="graph"):
        try:
            app: App = entry.load()()
        except ImportError as error:
            raise UsageError(f"the graph service cannot be loaded: {error}") from error
        return app
    raise UsageError("the graph service is not installed here; name a running one with --target")
