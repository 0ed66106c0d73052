"""The standard health service (``grpc.health.v1``), for probes and for clients that watch their servers.

``grpc_health.v1.health.aio.HealthServicer`` is not used: its watchers of one service share a condition that
is removed with the first watcher, so the others never receive a shutdown; and it holds the condition's lock
while it writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.errors import ServiceError, encode

_MAX_NAME_CHARACTERS = 200
LIVENESS = ""
"""The name of the server as a whole."""


class ContractHealth:
    """The health of one contract, which its implementation may change."""

    def __init__(self) -> None:
        self._serving = True
        self._listeners: list[Callable[[], None]] = []

    @property
    def serving(self) -> bool:
        """Whether the contract is served. Initially true."""
        return self._serving

    @serving.setter
    def serving(self, serving: bool) -> None:
        self._serving = serving
        for listener in self._listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls a function after every change."""
        self._listeners.append(listener)


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # the package has no types
    """Answers for the server, for each of its services and for each of its contracts.

    Args:
        contracts: The contracts that a name stands for, by name. It is served while all of them are.
    """

    def __init__(self, contracts: Mapping[str, Sequence[ContractHealth]]) -> None:
        self._contracts = {LIVENESS: (), **contracts}
        for health in chain.from_iterable(self._contracts.values()):
            health.listen(self._wake)
        self._ready = True
        self._serving = True
        self._open = True
        self._changed = asyncio.Event()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Adds the service to a server.

        Generated code would let gRPC end the call of a damaged request with the name of an exception.
        """
        response = health_pb2.HealthCheckResponse.SerializeToString
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(self.Check, _read, response),
            "Watch": grpc.unary_stream_rpc_method_handler(self.Watch, _read, response),
        }
        name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))

    async def Check(
        self, request: health_pb2.HealthCheckRequest | None, context: grpc.aio.ServicerContext[Any, Any]
    ) -> health_pb2.HealthCheckResponse:
        """Reports whether a contract is served; NOT_FOUND for one that this server does not have."""
        if request is None:
            return await _refuse(context)
        if request.service not in self._contracts:
            error = ServiceError(
                grpc.StatusCode.NOT_FOUND,
                error_reason_pb2.ERROR_REASON_RESOURCE_NOT_FOUND,
                "this server has no such service",
                metadata={"name": request.service[:_MAX_NAME_CHARACTERS]},
            )
            await context.abort_with_status(encode(error, ""))
        status = self._status(request.service) if self._ready else health_pb2.HealthCheckResponse.NOT_SERVING
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest | None, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Reports whether a contract is served, now and at every change, until the server stops."""
        if request is None:
            await _refuse(context)
        last = None
        while True:
            changed, status = self._changed, self._status(request.service)
            if status != last:
                # The last change is told although the watch was closed while the one before was sent.
                yield health_pb2.HealthCheckResponse(status=status)
                last = status
            elif self._open:
                await changed.wait()
            else:
                return

    def leave(self) -> None:
        """Reports everything as not serving to ``Check``, and thereby to probes, from now on.

        Watches see no change: a client that watches stops calling a server that does not serve, but resolves
        its name again only when the connection ends. One that knows no other server has none until then.
        """
        self._ready = False

    def shut_down(self) -> None:
        """Reports everything as not serving from now on."""
        self._ready = self._serving = False
        self._wake()

    def close(self) -> None:
        """Ends all watches; open watches would delay the stop until the end of its grace."""
        self._open = False
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _status(self, name: str) -> health_pb2.HealthCheckResponse.ServingStatus:
        status = health_pb2.HealthCheckResponse
        contracts = self._contracts.get(name)
        if contracts is None:
            return status.SERVICE_UNKNOWN
        serving = self._serving and all(health.serving for health in contracts)
        return status.SERVING if serving else status.NOT_SERVING


def _read(data: bytes) -> health_pb2.HealthCheckRequest | None:
    """Reads a request. None: the bytes are none."""
    try:
        return health_pb2.HealthCheckRequest.FromString(data)
    except DecodeError:
        return None


async def _refuse(context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
    error = ServiceError(
        grpc.StatusCode.INVALID_ARGUMENT,
        error_reason_pb2.ERROR_REASON_FIELD_INVALID,
        "the bytes of the request are no message of this method",
    )
    await context.abort_with_status(encode(error, ""))
