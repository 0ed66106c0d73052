"""A collector that takes spans and events by OTLP and looks at none.

python -m bench.load.collector
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractContextManager
from typing import Any

import grpc

from bench.load.serving import serving

_EXPORTS = frozenset(
    f"/opentelemetry.proto.collector.{service}/Export"
    for service in ("trace.v1.TraceService", "logs.v1.LogsService")
)


def collector() -> AbstractContextManager[str]:
    """Runs the collector in a process of its own; yields its address."""
    return serving("bench.load.collector")


class _Sink(grpc.GenericRpcHandler):
    """Answers every export with an empty message."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def take(batch: bytes, context: object) -> bytes:
            del batch, context
            return b""

        taken = handler_call_details.method in _EXPORTS
        return grpc.unary_unary_rpc_method_handler(take) if taken else None


async def _serve() -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([_Sink()])
    sys.stdout.write(f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}\n")
    sys.stdout.flush()
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve())
