"""A server to be attacked: ``python -m tests.support.hostile_target --port PORT``.

Its synthesizer answers at once, or, where the goal is WAIT, after a second; its streams of 100 kB messages
have no end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.service.contract import Contract
from dramaturg.service.server import run
from gateway.quotas.gate import Quotas
from gateway.quotas.settings import QuotaSettings
from tests.support.grpc_servers import ARITIES, arities, synthesizer

WAIT = "wait"
_PIECE = 100_000


async def _synthesize(request: SynthesizeRequest, context: object) -> SynthesizeResponse:
    if request.task.goal == WAIT:
        await asyncio.sleep(1)
    return SynthesizeResponse()


async def _endless(request: SynthesizeRequest, context: object) -> AsyncIterator[SynthesizeRequest]:
    piece = SynthesizeRequest()
    piece.task.goal = "x" * _PIECE
    while True:
        yield piece


def _add_endless(servicer: object, server: grpc.aio.Server) -> None:
    handler: Any = grpc.unary_stream_rpc_method_handler(
        _endless, SynthesizeRequest.FromString, SynthesizeRequest.SerializeToString
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(ARITIES, {"UnaryStream": handler}),)
    )


async def _nothing() -> None:
    pass


class App:
    """The target as a service, with the quotas of the environment."""

    name = "target"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """Its contracts, which evaluators may call."""
        gate = Quotas(QuotaSettings())
        streams = replace(arities(_nothing), add=_add_endless)
        contracts = (synthesizer(_synthesize), streams)
        yield [replace(contract, permission="evaluate", gate=gate) for contract in contracts]


if __name__ == "__main__":
    run(App)
