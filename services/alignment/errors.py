"""The errors that are this service's own."""

from __future__ import annotations

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.errors import ServiceError


def too_large(what: str, *, limit: int, actual: int) -> ServiceError:
    """The error of a request whose work or answer would not stay within bounds.

    Args:
        what: What there is too much of, in the plural, such as "groups".
        limit: The most that is allowed.
        actual: How many there are, or how many had been counted when the count ended.
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
