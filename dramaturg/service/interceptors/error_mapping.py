"""Maps exceptions of handlers to statuses of the contract, without internal details.

Unmapped, gRPC sends the text of an unexpected exception to the caller, and loses the code of a failed
dependency.
"""

from __future__ import annotations

import asyncio
import logging

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.context import current
from dramaturg.service.errors import ServiceError, downstream
from dramaturg.service.interceptors.call import Call, Proceed
from dramaturg.service.rpc import Context
from dramaturg.service.status import CallStatus, encode

logger = logging.getLogger(__name__)


class ErrorMapping:
    """Ends a call whose handler raises with a status, and records the code of every call."""

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Maps exceptions to statuses; an explicit abort passes unchanged.

        Raises:
            grpc.aio.AbortError: The call was aborted.
        """
        try:
            await proceed(call)
        except grpc.aio.AbortError:
            call.code = _code(call.context)
            raise
        except Exception as raised:
            status = _end(call, raised)
        except BaseException as raised:
            cancelled = isinstance(raised, asyncio.CancelledError | GeneratorExit)
            code = grpc.StatusCode.CANCELLED if cancelled else grpc.StatusCode.UNKNOWN
            call.code = code.name
            raise
        else:
            return
        if call.unread is not None:
            await call.unread.drop(call.context)
        # Not where the error is handled: gRPC keeps the exception that ends a call in a cycle of references,
        # and the error, which it would refer to, refers to what the handler knows, such as the request.
        await call.context.abort_with_status(status)


def _end(call: Call, raised: Exception) -> CallStatus:
    """Records the error that ends a call; returns its status."""
    error = _mapped(raised, call.context)
    call.code, call.reason = error.code.name, error.reason_name
    if error.code is grpc.StatusCode.INTERNAL:
        logger.error("%s failed", call.method, exc_info=raised)
    request = current()
    return encode(error, request.request_id if request else "")


def _mapped(raised: Exception, context: Context) -> ServiceError:
    if isinstance(raised, ServiceError):
        return raised
    if isinstance(raised, grpc.aio.AioRpcError):
        return downstream(raised, "a dependency")
    # The generated base of a servicer sets the code before it raises; an unknown method raises the bare
    # class.
    if isinstance(raised, NotImplementedError) and (
        not raised.args or context.code() is grpc.StatusCode.UNIMPLEMENTED
    ):
        return ServiceError(
            grpc.StatusCode.UNIMPLEMENTED,
            error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED,
            "the server does not implement this method",
        )
    return ServiceError(grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_INTERNAL, "internal error")


def _code(context: Context) -> str:
    code: object = context.code()  # a number at run time, unlike the stub's type
    return next((known.name for known in grpc.StatusCode if code in {known, known.value[0]}), "UNKNOWN")
