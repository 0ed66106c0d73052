"""The context of the call that is being served, and types of gRPC that several modules name.

A context variable carries it: the servicer, all that it awaits, and the channel read it. The channel passes
the deadline and the request id on to the next hop.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

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


_REQUEST_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)
_SECONDS = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)
REQUEST_ID_METADATA = "x-request-id"
"""The metadata key that carries the request id from hop to hop."""
PEER_METADATA = "x-dramaturg-peer"
"""The metadata key of the caller's address in calls that a front of the server forwards. Ignored in other
calls."""
BATCH_METADATA = "x-dramaturg-batch-until"
"""The metadata key of the time, in seconds since 1970, until which model calls may wait for batches."""
DEADLINE_METADATA = "x-deadline-seconds"
"""The key of the initial response metadata with the time limit that the server set: the caller stated no
deadline, or one beyond the maximum."""


def request_id_of(values: Iterable[str | bytes]) -> str:
    """The request id of a call: the caller's, or a new one.

    One that is not 1 to 128 letters, digits or ``_.:/+=-`` is replaced, since it goes into logs and headers.

    Args:
        values: What the caller gives.
    """
    given = (value for value in values if isinstance(value, str) and _REQUEST_ID.fullmatch(value))
    return next(given, None) or os.urandom(16).hex()


def batch_until_of(values: Iterable[str | bytes]) -> float | None:
    """Until when the model calls of a call may wait for batches; ``None`` where no valid time is given.

    Args:
        values: What the caller gives.
    """
    given = next((value for value in values if isinstance(value, str) and _SECONDS.fullmatch(value)), None)
    return None if given is None else float(given)


class RequestContext(NamedTuple):
    """One call, as the server sees it."""

    request_id: str
    """Names the request in the logs of every service that it passes through."""
    method: str = ""
    """The full method name, for example ``/dramaturg.api.judging.v1.JudgeService/Judge``."""
    peer: str = ""
    """The caller's address, as gRPC writes it."""
    deadline: float | None = None
    """When the work must have ended, on the clock of ``time.monotonic``. ``None``: never."""
    batch_until: float | None = None
    """Until when model calls may wait for batches, in seconds since 1970. ``None``: they are made live."""

    def remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; ``None`` without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


# A context variable: the interceptors of a channel, and the formatter of logs, get no argument for it.
_current: ContextVar[RequestContext | None] = ContextVar("dramaturg_request", default=None)


def current() -> RequestContext | None:
    """The call that is being served here; ``None`` outside of any."""
    return _current.get()


def remaining() -> float | None:
    """Seconds until the deadline of the call being served, at least 0; ``None`` where there is none."""
    request = _current.get()
    return None if request is None else request.remaining()


def enter(request: RequestContext) -> None:
    """Makes ``request`` the current call for the rest of the task."""
    _current.set(request)


@contextmanager
def scope(request: RequestContext) -> Iterator[RequestContext]:
    """Makes ``request`` the current call within a ``with`` block, for work that no server started."""
    token = _current.set(request)
    try:
        yield request
    finally:
        _current.reset(token)
