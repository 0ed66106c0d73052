"""Errors of the alignment service."""

from __future__ import annotations

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.errors import ServiceError


def too_large(what: str, *, limit: int, actual: int) -> ServiceError:
    """The error of a request whose work or response would exceed a limit.

    Args:
        what: The counted thing, in the plural, e.g. "groups".
        limit: The maximum.
        actual: The actual number, or a lower bound if counting stopped early.
    """
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_TOO_LARGE,
        f"the request makes {actual} {what}; at most {limit} are allowed",
        metadata={"limit": str(limit), "actual": str(actual)},
    )


def overloaded(limit: int) -> ServiceError:
    """The error of a request refused because the queue is full."""
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_OVERLOADED,
        f"{limit} requests are computed or wait for it already",
        metadata={"limit": str(limit)},
        retry_after=1.0,
    )
