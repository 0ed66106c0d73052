"""Names every call and writes one line about each: what, how it ended, how long it took, for whom.

Contents of messages are never logged.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from dramaturg.service.context import REQUEST_ID_METADATA, RequestContext, current, enter
from dramaturg.service.errors import ServiceError
from dramaturg.service.interceptors.around import AroundInterceptor, Context

logger = logging.getLogger("dramaturg.access")

_REQUEST_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)


class AccessLogInterceptor(AroundInterceptor):
    """Enters the request's context under the caller's request id, or a new one, and logs how the call ends.

    The id stands in the metadata or, where it does not, in the message's own field ``request_id``.
    One that is not 1 to 128 letters, digits or ``_.:/+=-`` is replaced, since it goes into logs and headers.
    """

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Logs at INFO; a fault of the service at ERROR."""
        request_id = _callers_request_id(context) or uuid.uuid4().hex
        request = RequestContext(request_id=request_id, method=method, peer=context.peer())
        enter(request)
        started = time.perf_counter()
        code, reason = grpc.StatusCode.OK.name, ""
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            code = grpc.StatusCode.CANCELLED.name
            raise
        except grpc.aio.AbortError as abort:
            error = abort.__cause__
            code = error.code.name if isinstance(error, ServiceError) else _code(context)
            reason = error.reason_name if isinstance(error, ServiceError) else ""
            raise
        except Exception:
            code = grpc.StatusCode.UNKNOWN.name
            raise
        finally:
            severe = code in {grpc.StatusCode.INTERNAL.name, grpc.StatusCode.UNKNOWN.name}
            fields = {
                "method": method,
                "code": code,
                "reason": reason,
                "seconds": round(time.perf_counter() - started, 6),
                "request_id": (current() or request).request_id,
                "peer": request.peer,
            }
            logger.log(logging.ERROR if severe else logging.INFO, "call", extra={"fields": fields})

    async def received(self, message: object, context: Context) -> None:
        """Takes the request id of the message where the metadata had none."""
        request, given = current(), getattr(message, "request_id", None)
        if request is None or not isinstance(given, str) or not _REQUEST_ID.fullmatch(given):
            return
        if _callers_request_id(context) is None:
            enter(dataclasses.replace(request, request_id=given))


def _callers_request_id(context: Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == REQUEST_ID_METADATA and isinstance(value, str) and _REQUEST_ID.fullmatch(value):
            return value
    return None


def _code(context: Context) -> str:
    code: object = context.code()  # a number at run time, whatever the stub's type says
    return next((known.name for known in grpc.StatusCode if code in {known, known.value[0]}), "UNKNOWN")
