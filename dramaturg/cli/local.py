"""Reaches one service: a running one, or one started in this process for the duration of a command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc

from dramaturg.cli.platform import UsageError
from dramaturg.service.channel import open_channel
from dramaturg.service.installed import App, UnknownServiceError, find_app
from dramaturg.service.server import Server
from dramaturg.service.settings import ChannelSettings, ServerSettings

# Calls within a process are not encrypted, regardless of the certificates for other servers.
_PLAIN = ChannelSettings.model_construct()


@asynccontextmanager
async def service_channel(service: str, target: str | None) -> AsyncIterator[grpc.aio.Channel]:
    """Yields a channel to a service.

    Args:
        service: The service's name, such as "graph".
        target: The address of the service, or of a gateway that forwards its calls. None: the service is
            started here, and stopped at the end.

    Raises:
        UsageError: The service is not installed.
    """
    async with AsyncExitStack() as stack:
        if target is None:
            contracts = await stack.enter_async_context(_installed(service).open())
            server = await stack.enter_async_context(Server(contracts, ServerSettings.loopback()))
            channel = open_channel(server.target, _PLAIN)
        else:
            channel = open_channel(target)
        yield await stack.enter_async_context(channel)


def _installed(service: str) -> App:
    try:
        return find_app(service)()
    except UnknownServiceError as error:
        raise UsageError(
            f"the {service} service is not installed here; name a running one with --target"
        ) from error
    except ImportError as error:
        raise UsageError(f"the {service} service cannot be loaded: {error}") from error
