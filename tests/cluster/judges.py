"""Critics and executors of another team, which misbehave: ``python -m tests.cluster.judges KIND SERVICE``.

They serve their contract and its health like any other judge, and are asked like any other.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import grpc

from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge import roles
from dramaturg.judge.contracts import judge_contract, serve
from dramaturg.service.contract import Contract


async def hang() -> Assessment:
    """Never answers."""
    await asyncio.Event().wait()
    raise AssertionError


async def spin() -> Assessment:
    """Takes a whole processor and lets nothing else in its process run."""
    while True:
        pass


class Judge:
    """A judge that does the same whatever it is asked."""

    version = "1.0.0"
    capabilities = ()

    def __init__(self, name: str, role: roles.JudgeRole, answer: Callable[[], Awaitable[Assessment]]) -> None:
        self.name, self.criteria = name, role.criteria
        self.description = f"Misbehaves: {name}."
        self._answer = answer

    async def judge(self, item: object) -> Assessment:
        return await self._answer()


def garbled(contract: Contract) -> Contract:
    """The contract with bytes for answers that are no message."""

    async def answer(request: bytes, context: object) -> AsyncIterator[bytes]:
        yield b"\xff\xff\xff\xff not a message"

    def add(servicer: object, server: grpc.aio.Server) -> None:
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_stream_rpc_method_handler(answer)
        handlers = {method.name: handler for method in contract.descriptor.methods}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(contract.descriptor.full_name, handlers),)
        )

    # Its handler takes bytes, of which no items can be counted.
    return replace(contract, add=add, weights={})


_ANSWERS = {"hanging": hang, "spinning": spin, "garbling": hang}
_ROLES = {"critic": roles.CRITIC, "execute": roles.EXECUTE}


def main() -> None:
    """Serves until SIGTERM."""
    kind, service = sys.argv[1:]
    contract = judge_contract(Judge(f"{kind}-{service}", _ROLES[service], _ANSWERS[kind]))
    serve(garbled(contract) if kind == "garbling" else contract, [])


def program(kind: str) -> list[str]:
    """The command line, which lacks the service's name: a pod's manifest gives that."""
    return [sys.executable, "-m", "tests.cluster.judges", kind]


if __name__ == "__main__":
    main()
