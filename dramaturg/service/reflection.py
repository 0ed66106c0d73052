"""Server reflection (``grpc.reflection.v1`` and ``v1alpha``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

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
