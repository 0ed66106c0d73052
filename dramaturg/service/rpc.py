"""Types of ``grpc.aio`` that its stubs alone make generic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
else:
    Context, Handler = grpc.aio.ServicerContext, grpc.RpcMethodHandler

Metadata: TypeAlias = Iterable[tuple[str, Any]]
"""The metadata of a call: keys, and values that are text or bytes."""
