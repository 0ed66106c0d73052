"""Types and methods of gRPC that several modules name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc

# Generic in the stubs of ``grpc.aio`` alone.
if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
else:
    Context, Handler = grpc.aio.ServicerContext, grpc.RpcMethodHandler

Metadata: TypeAlias = Iterable[tuple[str, Any]]
"""The metadata of a call: keys, and values that are text or bytes."""

INFRASTRUCTURE: Final = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""Prefixes of the methods that are neither intercepted nor observed: a full server must answer probes, and
watches have no end."""
