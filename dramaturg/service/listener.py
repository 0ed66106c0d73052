"""Options, ports and handlers of gRPC servers: reflection, identities, health on a port of its own.

A kubelet has no certificate, so a port that requires one refuses it. The answers to probes are those of the
other port: of the same servicer, on the same event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from dramaturg.api.identity.v1 import identity_service_pb2_grpc
from dramaturg.api.identity.v1.identity_service_pb2 import (
    CheckModelRequest,
    CheckModelResponse,
    GetIdentityRequest,
    GetIdentityResponse,
    ListModelWaitsRequest,
    ListModelWaitsResponse,
)
from dramaturg.service.contract import Contract
from dramaturg.service.errors import invalid
from dramaturg.service.health import HealthServicer
from dramaturg.service.settings import ServerSettings

SERVICE_NAME: str = reflection.SERVICE_NAME
_V1 = "grpc.reflection.v1.ServerReflection"


def enable_reflection(service_names: Sequence[str], server: grpc.aio.Server) -> None:
    """Lets clients ask a server for its services and their descriptors.

    The package has v1alpha alone. The messages of v1 are the same on the wire, so one servicer answers both.

    Args:
        service_names: The full names of the services.
        server: The server, not yet started.
    """
    reflection.enable_server_reflection(service_names, server)
    servicer: Any = reflection.aio.ReflectionServicer(service_names)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    handlers = {"ServerReflectionInfo": handler}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_V1, handlers)])


class IdentityServicer(identity_service_pb2_grpc.IdentityServiceServicer):
    """Answers for the contracts given."""

    def __init__(self, contracts: Sequence[Contract]) -> None:
        self._contracts = {contract.full_name: contract for contract in contracts}

    async def GetIdentity(
        self, request: GetIdentityRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> GetIdentityResponse:
        """The identity behind the contract named, or behind the only one."""
        del context
        return GetIdentityResponse(identity=self._find(request.contract).identity)

    async def CheckModel(
        self, request: CheckModelRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> CheckModelResponse:
        """Checks the model of the contract named, or of the only one."""
        del context
        models = self._find(request.contract).models
        if models is None:
            return CheckModelResponse()
        check = await models.check_model(
            request.model,
            configuration_only=request.configuration_only,
            check_usage=request.check_usage,
        )
        return CheckModelResponse(check=check)

    async def ListModelWaits(
        self, request: ListModelWaitsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> ListModelWaitsResponse:
        """The waits of the contract named, or of the only one."""
        del context
        models = self._find(request.contract).models
        return ListModelWaitsResponse(waits=() if models is None else await models.model_waits())

    def _find(self, name: str) -> Contract:
        known = ", ".join(sorted(self._contracts)) or "none"
        if not name:
            if len(self._contracts) != 1:
                raise invalid("contract", f"is required: this server's contracts are {known}")
            return next(iter(self._contracts.values()))
        if name not in self._contracts:
            raise invalid("contract", f"is none of this server's, which are {known}")
        return self._contracts[name]


Option: TypeAlias = tuple[str, Any]
"""The name and the value of a channel argument of gRPC."""

EXCLUSIVE: Final[Option] = ("grpc.so_reuseport", 0)
"""Without it, two servers on one port silently share its calls."""

_NO_COMPRESSION: Final[Option] = ("grpc.compression_enabled_algorithms_bitset", 1)
"""Refuses compressed requests: hundreds of 15 kB that inflate to 15 MB each are in memory at once."""
REFUSED_FACTOR = 2
"""Requests of up to this many times the largest size are received, so that their refusal has details."""
_LONGEST_QUEUE = 100_000
_NEVER = 2**31 - 1
"""gRPC's value of a duration without an end."""


def bind(
    server: grpc.aio.Server, host: str, port: int, credentials: grpc.ServerCredentials | None = None
) -> int:
    """Binds a server that is not started yet; returns the port.

    Args:
        server: The server.
        host: The address.
        port: The port; 0 takes a free one.
        credentials: Those of the server. ``None``: plain text.

    Raises:
        OSError: The address cannot be listened on.
    """
    address = f"{host}:{port}"
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: is the port in use?") from error


def server_options(settings: ServerSettings, *, unlimited: bool = False) -> list[Option]:
    """The options of a server of contracts.

    Args:
        settings: The limits.
        unlimited: Whether calls may take any time.
    """

    def milliseconds(seconds: float) -> int:
        return round(seconds * 1000)

    # gRPC refuses a larger message without details. Compressed ones could inflate up to this.
    received = settings.max_message_bytes * (1 if settings.compressed_requests else REFUSED_FACTOR)
    grace = _NEVER if unlimited else milliseconds(settings.maximum_deadline_seconds + 60)
    return [
        EXCLUSIVE,
        ("grpc.max_receive_message_length", min(received, _NEVER)),
        *([] if settings.compressed_requests else [_NO_COMPRESSION]),
        # gRPC's own queue drops calls of a burst with CANCELLED; the admission interceptor refuses them with
        # a reason.
        ("grpc.server.max_pending_requests", _LONGEST_QUEUE),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _LONGEST_QUEUE),
        # gRPC spreads the age by a tenth either way, so that clients do not come back all at once. A call
        # in progress when the grace ends is lost, so the grace is longer than any call.
        ("grpc.max_connection_age_ms", milliseconds(settings.max_connection_age_seconds)),
        ("grpc.max_connection_age_grace_ms", grace),
        ("grpc.keepalive_time_ms", milliseconds(settings.keepalive_seconds)),
        ("grpc.keepalive_timeout_ms", milliseconds(20)),
        # Clients of this package probe as often as the server does; without this they are sent away for it.
        ("grpc.http2.min_ping_interval_without_data_ms", milliseconds(settings.keepalive_seconds / 2)),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


class Registration:
    """Stands for a server where generated code adds servicers to it.

    Methods can also be registered with gRPC beforehand. An asynchronous server then waits for each method by
    itself, and with every call goes through all of them: at 27 methods a tenth of the processor time of a
    call that does nothing, its caller's included. It has no other effect, so it is left out.

    Args:
        server: The server.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Adds handlers that find their methods by name."""
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, object]) -> None:
        """Does nothing: the generic handler, which is always added too, has the same methods."""


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
