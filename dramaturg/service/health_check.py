"""Asks a server for its health: ``python -m dramaturg.service.health_check TARGET [CONTRACT]``.

The environment configures the channel (section ``channel``). Exit codes: 0 if the contract is served, else 1.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.service.channel import open_channel


async def check(target: str, contract: str, timeout: float) -> str:
    """The health of a contract: "SERVING", another status, or the error of the call."""
    async with open_channel(target) as channel:
        try:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=contract), timeout=timeout
            )
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def main() -> None:
    """Prints the health."""
    parser = argparse.ArgumentParser(description="Asks a server for its health.")
    parser.add_argument("target", help="the address, for example gateway:50051")
    parser.add_argument("contract", nargs="?", default="", help="the contract; by default the whole server")
    parser.add_argument("--timeout", type=float, default=30, help="seconds")
    given = parser.parse_args()
    status = asyncio.run(check(given.target, given.contract, given.timeout))
    sys.stdout.write(f"{status}\n")
    sys.exit(0 if status == "SERVING" else 1)


if __name__ == "__main__":
    main()
