"""Turns what a handler raises into a status that the contract knows, and leaks nothing else.

Unmapped, gRPC sends the text of an unexpected exception to the caller, and loses the code of a failed
dependency.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.context import current
from dramaturg.service.errors import ServiceError, downstream
from dramaturg.service.status import encode

if TYPE_CHECKING:
    from dramaturg.service.interceptors.calls import Context

logger = logging.getLogger(__name__)


async def abort(raised: Exception, method: str, context: Context) -> NoReturn:
    """Ends a call with the status of what was raised; a deliberate abort passes.

    Raises:
        grpc.aio.AbortError: Always. Its ``__cause__`` is the ``ServiceError``: there the access log finds it.
    """
    if isinstance(raised, grpc.aio.AbortError):
        raise raised
    error = _mapped(raised, context)
    if error.code is grpc.StatusCode.INTERNAL:
        logger.error("%s failed", method, exc_info=raised)
    request = current()
    try:
        await context.abort_with_status(encode(error, request.request_id if request else ""))
    except grpc.aio.AbortError as ended:
        raise ended from error
    raise AssertionError("an abort returned")


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
