"""Turns what a handler raises into a status that the contract knows, and leaks nothing else.

Unmapped, gRPC sends the text of an unexpected exception to the caller, and loses the code of a failed
dependency.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.context import current
from dramaturg.service.errors import ServiceError, downstream
from dramaturg.service.interceptors.around import AroundInterceptor, Context
from dramaturg.service.status import encode

logger = logging.getLogger(__name__)


class ErrorMappingInterceptor(AroundInterceptor):
    """Ends a failed call with the status of its ``ServiceError``.

    The error is the abort's ``__cause__``: there the access log finds it.
    """

    @asynccontextmanager
    async def around(self, method: str, context: Context) -> AsyncIterator[None]:
        """Aborts the call where the handler raises; lets cancellation and deliberate aborts through."""
        try:
            yield
        except grpc.aio.AbortError:
            raise
        except Exception as raised:
            error = _mapped(raised, context)
            if error.code is grpc.StatusCode.INTERNAL:
                logger.error("%s failed", method, exc_info=raised)
            request = current()
            try:
                await context.abort_with_status(encode(error, request.request_id if request else ""))
            except grpc.aio.AbortError as abort:
                raise abort from error


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
