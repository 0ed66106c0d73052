"""Calls AlignmentService: one that runs, or one of this command's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import grpc

from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.cli.local import service_channel
from dramaturg.cli.platform import fail, run
from dramaturg.service.errors import from_rpc_error

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

T = TypeVar("T")


def call_alignment(
    target: str | None,
    method: Callable[[AlignmentServiceAsyncStub], Awaitable[T]],
    *,
    failed: int = 1,
) -> T:
    """Calls AlignmentService.

    Args:
        target: Where it listens, as ``host:port``; ``None``: one is started here, for the length of the call.
        method: Makes the call.
        failed: The exit code where the call fails.

    Raises:
        typer.Exit: With a message: where the call failed, or (2) where there is no service to be started.
    """

    async def call() -> T:
        async with service_channel("alignment", target) as channel:
            return await method(AlignmentServiceStub(channel))

    try:
        return run(call())
    except grpc.aio.AioRpcError as failure:
        error = from_rpc_error(failure)
        fail(f"{target or 'the alignment service'}: {error.code.name}: {error.message}", code=failed)
