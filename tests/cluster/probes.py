"""Probes as the kubelet makes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

Probe = Mapping[str, Any]

_PERIOD_SECONDS = 0.5


async def passes(probe: Probe, address: str) -> bool:
    """Makes a declared probe once, in plain text and without any credentials."""
    asked = probe["grpc"]
    request = health_pb2.HealthCheckRequest(service=asked.get("service", ""))
    async with grpc.aio.insecure_channel(f"{address}:{asked['port']}") as channel:
        try:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                request, timeout=probe.get("timeoutSeconds", 1)
            )
        except grpc.aio.AioRpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def wait_for(probe: Probe, address: str, alive: Callable[[], bool]) -> bool:
    """Probes until it passes; false when it has not after as long as the manifest has patience.

    It is asked more often than declared, to lose no time, and for no longer.
    """
    loop = asyncio.get_running_loop()
    patience = probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10)
    give_up = loop.time() + patience
    while alive():
        if await passes(probe, address):
            return True
        if loop.time() > give_up:
            return False
        await asyncio.sleep(_PERIOD_SECONDS)
    return False
