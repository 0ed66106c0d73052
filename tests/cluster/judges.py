"""Critics and executors of another team, which misbehave: ``python -m tests.cluster.judges KIND SERVICE``.

They serve their contract and its health like any other judge, and are asked like any other.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace

import grpc

from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge import roles
from dramaturg.judge.contracts import critic_contract, execute_contract, serve
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

    async def critique(self, request: object) -> Assessment:
        """As a critic."""
        return await self._answer()

    async def execute(self, request: object) -> Assessment:
        """As an executor."""
        return await self._answer()


def garbled(contract: Contract) -> Contract:
    """The contract with bytes for answers that are no message."""

    async def answer(request: bytes, context: object) -> bytes:
        return b"\xff\xff\xff\xff not a message"

    def add(servicer: object, server: grpc.aio.Server) -> None:
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
        handlers = {method.name: handler for method in contract.descriptor.methods}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(contract.descriptor.full_name, handlers),)
        )

    return replace(contract, add=add)


_ANSWERS = {"hanging": hang, "spinning": spin, "garbling": hang}
_CONTRACTS: dict[str, tuple[roles.JudgeRole, Callable[[Judge], Contract]]] = {
    "critic": (roles.CRITIC, critic_contract),
    "execute": (roles.EXECUTE, execute_contract),
}


def main() -> None:
    """Serves until SIGTERM."""
    kind, service = sys.argv[1:]
    role, make = _CONTRACTS[service]
    contract = make(Judge(f"{kind}-{service}", role, _ANSWERS[kind]))
    serve(garbled(contract) if kind == "garbling" else contract, [])


def program(kind: str) -> list[str]:
    """The command line, which lacks the service's name: a pod's manifest gives that."""
    return [sys.executable, "-m", "tests.cluster.judges", kind]


if __name__ == "__main__":
    main()
