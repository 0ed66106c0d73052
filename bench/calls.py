"""The processor time of a call through the runtime's channel and server, over that of bare ``grpc.aio``.

Client and server share one process and do nothing else. The runtime has everything on: the access log,
metrics, limits, admission, deadlines, propagation; for ``unary_traced`` also spans, which are recorded and
thrown away. Figures are ratios of the least of some rounds, which take turns: ``unary`` for a call,
``streamed_message`` for a message of a long stream, ``unary_traced`` for a call whose spans are recorded,
over one whose are not.

    python bench/calls.py --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from dramaturg.api.generation.v1 import generation_service_pb2, generation_service_pb2_grpc
from dramaturg.api.generation.v1.generation_service_pb2 import (
    GenerateBatchRequest,
    GenerateBatchResponse,
    GenerateRequest,
    GenerateResponse,
)
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from dramaturg.service.logs import JsonFormatter
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.service.telemetry import instruments, new_registry, tracing

CALLS, MESSAGES, CONCURRENCY = 400, 4000, 16
Work = Callable[[], Awaitable[None]]


class Generation(generation_service_pb2_grpc.GenerationServiceServicer):
    """Answers at once."""

    async def Generate(self, request: GenerateRequest, context: Any) -> GenerateResponse:
        """Answers at once."""
        del request, context
        return GenerateResponse()

    ListModels = CheckProvider = GetLedgerStatus = GetRateLimits = Generate  # type: ignore[assignment] # not called

    async def GenerateBatch(
        self, request: GenerateBatchRequest, context: Any
    ) -> AsyncIterator[GenerateBatchResponse]:
        """Sends many responses."""
        del request, context
        for index in range(MESSAGES):
            yield GenerateBatchResponse(index=index)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="how many rounds (default: 15)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    ratios = asyncio.run(measure(arguments.rounds))
    if arguments.json:
        json.dump(ratios, sys.stdout)
        print()
    else:
        for name, ratio in ratios.items():
            print(f"{name}: {ratio:.2f}")
    return 0


async def measure(rounds: int) -> dict[str, float]:
    """The ratios, by name."""
    log_nowhere()
    instruments.count_into(new_registry())
    provider = TracerProvider()
    provider.add_span_processor(SpanProcessor())
    async with bare_stub() as bare, runtime_stub() as ours:
        seconds: dict[str, list[float]] = {}

        async def take(name: str, work: Work) -> None:
            before = time.process_time()
            await work()
            seconds.setdefault(name, []).append(time.process_time() - before)

        for _ in range(rounds):
            await take("bare call", lambda: call(bare))
            await take("our call", lambda: call(ours))
            tracing.configure(provider)
            await take("our traced call", lambda: call(ours))
            tracing.configure(None)
            await take("bare stream", lambda: stream(bare))
            await take("our stream", lambda: stream(ours))
    least = {name: min(found) for name, found in seconds.items()}
    return {
        "unary": least["our call"] / least["bare call"],
        "streamed_message": least["our stream"] / least["bare stream"],
        "unary_traced": least["our traced call"] / least["our call"],
    }


def log_nowhere() -> None:
    """Formats every line of the log, and throws it away."""
    handler = logging.StreamHandler(Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level="INFO", handlers=[handler], force=True)


async def call(stub: Any) -> None:
    """Makes unary calls, some at once."""
    request = GenerateRequest()
    request.messages.add(role=generation_service_pb2.MESSAGE_ROLE_USER, text="What is tea?")

    async def some() -> None:
        for _ in range(CALLS // CONCURRENCY):
            await stub.Generate(request)

    await asyncio.gather(*(some() for _ in range(CONCURRENCY)))


async def stream(stub: Any) -> None:
    """Reads a long stream."""
    request = GenerateBatchRequest()
    request.requests.add().messages.add(role=generation_service_pb2.MESSAGE_ROLE_USER, text="What is tea?")
    async for _ in stub.GenerateBatch(request):
        pass


@asynccontextmanager
async def bare_stub() -> AsyncIterator[Any]:
    """A stub of ``grpc.aio`` alone on both sides."""
    server = grpc.aio.server()
    generation_service_pb2_grpc.add_GenerationServiceServicer_to_server(Generation(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield generation_service_pb2_grpc.GenerationServiceStub(channel)
    await server.stop(0)


@asynccontextmanager
async def runtime_stub() -> AsyncIterator[Any]:
    """A stub of the runtime on both sides."""
    contract = Contract.make(
        generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"],
        generation_service_pb2_grpc.add_GenerationServiceServicer_to_server,
        Generation(),
        name="generation",
        version="1.0.0",
        description="Answers at once.",
    )
    settings = ServerSettings(port=0, drain_grace_seconds=0)
    async with Server([contract], settings) as server, open_channel(server.target) as channel:
        yield generation_service_pb2_grpc.GenerationServiceStub(channel)


if __name__ == "__main__":
    sys.exit(main())
