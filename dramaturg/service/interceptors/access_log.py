"""Names every call and writes one line about each: what, how it ended, how long it took, for whom.

Contents of messages are never logged.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from typing import TYPE_CHECKING

import grpc

from dramaturg.service import logs
from dramaturg.service.auth import audit
from dramaturg.service.context import REQUEST_ID_METADATA, RequestContext, current, enter
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
    """

    __slots__ = ("_code", "_context", "_named", "_observed", "_reason", "_request", "_run_id", "_started")

    def __init__(self, method: str, context: Context) -> None:
        given = _callers_request_id(context)
        self._named = given is not None
        self._request = RequestContext(given or uuid.uuid4().hex, method, context.peer())
        self._context = context
        self._observed = ServedCall(method, context.invocation_metadata())
        self._code, self._reason, self._run_id = _OK, "", ""
        self._started = time.perf_counter()
        enter(self._request)

    def received(self, message: object) -> None:
        """Takes the run that it is about, and the request id of the message where the metadata had none."""
        self._run_id = str(getattr(message, "run_id", ""))
        given = getattr(message, "request_id", None)
        if self._named or not given or not isinstance(given, str) or not _REQUEST_ID.fullmatch(given):
            return
        request = current() or self._request
        enter(RequestContext(given, request.method, request.peer, request.deadline))

    def answered(self, message: object) -> None:
        """Takes the run that was created by the call."""
        if not self._run_id:
            self._run_id = str(getattr(getattr(message, "run", None), "id", ""))

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
        seconds, request_id = time.perf_counter() - self._started, (current() or self._request).request_id
        fields = {
            "method": self._request.method,
            "code": self._code,
            "reason": self._reason,
            "seconds": round(seconds, 6),
            "request_id": request_id,
            "peer": self._request.peer,
        }
        audit.write(fields, self._run_id)
        logs.write(logger, logging.ERROR if self._code in _SEVERE else logging.INFO, "call", fields)
        self._observed.end(self._code, self._reason, seconds, request_id)


def _callers_request_id(context: Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == REQUEST_ID_METADATA and isinstance(value, str) and _REQUEST_ID.fullmatch(value):
            return value
    return None


def _code(context: Context) -> str:
    code: object = context.code()  # a number at run time, whatever the stub's type says
    return next((known.name for known in grpc.StatusCode if code in {known, known.value[0]}), "UNKNOWN")
