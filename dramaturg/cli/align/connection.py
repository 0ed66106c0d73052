"""Reaches AlignmentService: one that runs, or one of this command's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, TypeVar

import grpc

from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.cli.platform import UsageError, fail, run
from dramaturg.service.app import App
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import from_rpc_error
from dramaturg.service.server import Server
from dramaturg.service.settings import ChannelSettings, ServerSettings

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

T = TypeVar("T")

# Within one process there is nothing to encrypt, whatever certificates the environment names for others.
_LOOPBACK = ServerSettings.model_construct(host="127.0.0.1", port=0)
_PLAIN = ChannelSettings.model_construct()


def call_alignment(target: str | None, method: Callable[[AlignmentServiceAsyncStub], Awaitable[T]]) -> T:
    """Calls AlignmentService.

    Args:
        target: Where it listens, as ``host:port``; ``None``: one is started here, for the length of the call.
        method: Makes the call.

    Raises:
        typer.Exit: With a message: 1 where the call failed, 2 where there is no service to be started.
    """

    async def call() -> T:
        async with _alignment(target) as stub:
            return await method(stub)

    try:
        return run(call())
    except grpc.aio.AioRpcError as failure:
        error = from_rpc_error(failure)
        fail(f"{target or 'the alignment service'}: {error.code.name}: {error.message}", code=1)


@asynccontextmanager
async def _alignment(target: str | None) -> AsyncIterator[AlignmentServiceAsyncStub]:
    async with AsyncExitStack() as stack:
        if target is None:
            contracts = await stack.enter_async_context(_installed("alignment").open())
            server = await stack.enter_async_context(Server(contracts, _LOOPBACK))
            channel = open_channel(server.target, _PLAIN)
        else:
            channel = open_channel(target)
        yield AlignmentServiceStub(await stack.enter_async_context(channel))


def _installed(service: str) -> App:
    # By name only: the wheel with this command does not hold the services.
    for entry in entry_points(group="dramaturg.services", name=service):
        try:
            app: App = entry.load()()
        except ImportError as error:
            raise UsageError(f"the {service} service cannot be loaded: {error}") from error
        return app
    raise UsageError(f"the {service} service is not installed here; name one that runs with --target")
