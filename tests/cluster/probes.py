"""Probes as the kubelet makes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

Probe = Mapping[str, Any]
Ports = Mapping[str, int]

_PERIOD_SECONDS = 0.5


async def passes(probe: Probe, address: str, ports: Ports) -> bool:
    """Makes a declared probe once."""
    seconds = probe.get("timeoutSeconds", 1)
    if (asked := probe.get("tcpSocket")) is not None:
        return await _connects(address, ports.get(asked["port"], asked["port"]), seconds)
    asked = probe["grpc"]
    return await _serves(f"{address}:{asked['port']}", asked.get("service", ""), seconds)


async def wait_for(probe: Probe, address: str, ports: Ports, alive: Callable[[], bool]) -> bool:
    """Probes until it passes; false when it has not after as long as the manifest has patience.

    It is asked more often than declared, to lose no time, and for no longer.
    """
    loop = asyncio.get_running_loop()
    patience = probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10)
    give_up = loop.time() + patience
    while alive():
        if await passes(probe, address, ports):
            return True
        if loop.time() > give_up:
            return False
        await asyncio.sleep(_PERIOD_SECONDS)
    return False


async def _connects(address: str, port: int, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(address, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _serves(target: str, service: str, seconds: float) -> bool:
    async with grpc.aio.insecure_channel(target) as channel:
        try:
            request = health_pb2.HealthCheckRequest(service=service)
            answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=seconds)
        except grpc.aio.AioRpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
