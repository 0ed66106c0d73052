"""Health for probes: alone, in plain text, on a port of its own.

A kubelet has no certificate, so a port that requires one refuses it. The answers are those of the other port:
of the same servicer, on the same event loop.
"""

from __future__ import annotations

import grpc

from dramaturg.service.health import HealthServicer
from dramaturg.service.listener import EXCLUSIVE, Option, bind

_OPTIONS: tuple[Option, ...] = (
    EXCLUSIVE,
    # A request is a name. Callers are not authenticated here: they may send nothing that costs.
    ("grpc.max_receive_message_length", 4096),
    ("grpc.max_concurrent_streams", 16),
)


class ProbeServer:
    """Serves ``grpc.health.v1.Health`` and nothing else.

    Args:
        health: Answers.
        host: The address to listen on.
        port: The port to listen on.

    Raises:
        OSError: The address cannot be listened on.
    """

    def __init__(self, health: HealthServicer, host: str, port: int) -> None:
        self._server = grpc.aio.server(options=_OPTIONS)
        health.add_to(self._server)
        bind(self._server, host, port)

    async def start(self) -> None:
        """Starts to answer."""
        await self._server.start()

    async def stop(self) -> None:
        """Stops at once."""
        await self._server.stop(None)
