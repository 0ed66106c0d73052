"""Names every call and writes one line about each: what, how it ended, how long it took, for whom.

Contents of messages are never logged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Container, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.descriptor import Descriptor

from dramaturg.service import logs
from dramaturg.service.auth import audit
from dramaturg.service.context import REQUEST_ID_METADATA, RequestContext, enter
from dramaturg.service.errors import ServiceError
from dramaturg.service.telemetry.calls import ServedCall

if TYPE_CHECKING:
    from dramaturg.service.interceptors.calls import Context

logger = logging.getLogger("dramaturg.access")

_REQUEST_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)
_OK = grpc.StatusCode.OK.name
_SEVERE = frozenset({grpc.StatusCode.INTERNAL.name, grpc.StatusCode.UNKNOWN.name})


class LoggedCall:
    """One call, from the moment at which it is made: enters the request's context, and logs how it ends.

    The request id is the caller's, or a new one. It stands in the metadata or, where it does not, in the
    message's own field ``request_id``. One that is not 1 to 128 letters, digits or ``_.:/+=-`` is replaced,
    since it goes into logs and headers.

    Args:
        method: The full name of the method.
        context: The call.
        message: What it asks; ``None`` where requests come in a stream.
        seconds: How long it may take.

    Attributes:
        metadata: What the call brings besides its messages: gRPC decodes it anew for whoever asks it.
        seconds: How long the call may take.
    """

    __slots__ = (
        "_code",
        "_context",
        "_named",
        "_observed",
        "_reason",
        "_request",
        "_run_id",
        "_started",
        "metadata",
        "seconds",
    )

    def __init__(self, method: str, context: Context, message: Any, seconds: float) -> None:
        self._started = time.perf_counter()
        self._context = context
        self.seconds = seconds
        self.metadata = context.invocation_metadata() or ()
        self._code, self._reason, self._run_id = _OK, "", ""
        given = _callers_request_id(self.metadata)
        self._named = given is not None
        if message is not None:
            given = self._told(message) or given
        deadline = time.monotonic() + seconds
        self._request = RequestContext(given or os.urandom(16).hex(), method, context.peer(), deadline)
        enter(self._request)
        self._observed = ServedCall(method, self.metadata)

    def received(self, message: Any) -> None:
        """Takes the run that it is about, and the request id of the message where the metadata had none."""
        given = self._told(message)
        if given is not None:
            self._request = self._request._replace(request_id=given)
            enter(self._request)

    def answered(self, message: Any) -> None:
        """Takes the run that was created by the call."""
        if not self._run_id and "run" in _fields(message):
            self._run_id = str(getattr(message.run, "id", ""))

    def _told(self, message: Any) -> str | None:
        """The request id that a message brings where the metadata had none."""
        fields = _fields(message)
        self._run_id = str(message.run_id) if "run_id" in fields else ""
        if self._named or "request_id" not in fields:
            return None
        given: object = message.request_id
        return given if isinstance(given, str) and _REQUEST_ID.fullmatch(given) else None

    def failed(self, raised: BaseException) -> None:
        """Says by what the call ends."""
        if isinstance(raised, asyncio.CancelledError | GeneratorExit):
            self._code = grpc.StatusCode.CANCELLED.name
        elif isinstance(raised, grpc.aio.AbortError):
            error = raised.__cause__
            self._code = error.code.name if isinstance(error, ServiceError) else _code(self._context)
            self._reason = error.reason_name if isinstance(error, ServiceError) else ""
        else:
            self._code = grpc.StatusCode.UNKNOWN.name

    def end(self) -> None:
        """Logs at INFO; a fault of the service at ERROR."""
        seconds, request = time.perf_counter() - self._started, self._request
        fields = {
            "method": request.method,
            "code": self._code,
            "reason": self._reason,
            "seconds": round(seconds, 6),
            "request_id": request.request_id,
            "peer": request.peer,
        }
        audit.write(fields, self._run_id)
        logs.write(logger, logging.ERROR if self._code in _SEVERE else logging.INFO, "call", fields)
        self._observed.end(self._code, self._reason, seconds, request.request_id)


def _callers_request_id(metadata: Iterable[tuple[str, Any]]) -> str | None:
    for key, value in metadata:
        if key == REQUEST_ID_METADATA and isinstance(value, str) and _REQUEST_ID.fullmatch(value):
            return value
    return None


def _fields(message: Any) -> Container[str]:
    """The names of a message's fields: to ask a message for one that it has not is slow."""
    descriptor: Descriptor | None = getattr(message, "DESCRIPTOR", None)
    return () if descriptor is None else _names(descriptor)


@cache
def _names(descriptor: Descriptor) -> frozenset[str]:
    return frozenset(descriptor.fields_by_name)


def _code(context: Context) -> str:
    code: object = context.code()  # a number at run time, whatever the stub's type says
    return next((known.name for known in grpc.StatusCode if code in {known, known.value[0]}), "UNKNOWN")
