"""Reaches one service: a running one, or one started in this process for the length of a command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import entry_points

import grpc

from dramaturg.cli.platform import UsageError
from dramaturg.service.app import App
from dramaturg.service.channel import open_channel
from dramaturg.service.server import Server
from dramaturg.service.settings import ChannelSettings, ServerSettings

# Within one process there is nothing to encrypt, whatever certificates the environment names for others.
_LOOPBACK = ServerSettings.model_construct(host="127.0.0.1", port=0)
_PLAIN = ChannelSettings.model_construct()


@asynccontextmanager
async def service_channel(service: str, target: str | None) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a service.

    Args:
        service: The service's name, such as "graph".
        target: Where it runs, or a gateway that passes calls on to it; None starts one here.

    Raises:
        UsageError: There is none to be started.
    """
    async with AsyncExitStack() as stack:
        if target is None:
            contracts = await stack.enter_async_context(_installed(service).open())
            server = await stack.enter_async_context(Server(contracts, _LOOPBACK))
            channel = open_channel(server.target, _PLAIN)
        else:
            channel = open_channel(target)
        yield await stack.enter_async_context(channel)


def _installed(service: str) -> App:
    # By name only: the wheel with the command line does not hold the services.
    for entry in entry_points(group="dramaturg.services", name=service):
        try:
            app: App = entry.load()()
        except ImportError as error:
            raise UsageError(f"the {service} service cannot be loaded: {error}") from error
        return app
    raise UsageError(f"the {service} service is not installed here; name one that runs with --target")
