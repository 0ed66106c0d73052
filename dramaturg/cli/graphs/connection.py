"""The connection of the graph commands: to a running service, or to one started in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import grpc
import typer

from dramaturg.api.graph.v1 import graph_service_pb2_grpc as rpc
from dramaturg.cli.local import service_channel
from dramaturg.cli.options import target_option
from dramaturg.cli.platform import fail, run
from dramaturg.datasets.json_lines import LineError
from dramaturg.graphs.files import FileError
from dramaturg.service.errors import from_rpc_error

Target = Annotated[str | None, target_option("a gateway or of GraphService")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Result = TypeVar("Result")


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


def run_graphs(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of a command's calls.

    Raises:
        typer.Exit: 2 with a message: a file is invalid or unreadable, or the service refused or failed.
    """
    try:
        return run(work)
    except (FileError, LineError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}" if error.filename else str(error))
    except grpc.aio.AioRpcError as error:
        fail(from_rpc_error(error).message)
