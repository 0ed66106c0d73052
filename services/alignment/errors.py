"""Errors of the alignment service."""

from __future__ import annotations

from dramaturg.service import errors
from dramaturg.service.errors import ServiceError


def too_large(what: str, *, limit: int, actual: int) -> ServiceError:
    """The error of a request whose work or response would exceed a limit.

    Args:
        what: The counted thing, in the plural, e.g. "groups".
        limit: The maximum.
        actual: The actual number, or a lower bound if counting stopped early.
    """
    message = f"the request makes {actual} {what}; at most {limit} are allowed"
    return errors.too_large(message, limit=limit, actual=actual)


def overloaded(limit: int) -> ServiceError:
    """The error of a request refused because the queue is full."""
    return errors.overloaded(f"{limit} requests are computed or wait for it already", 1.0, limit=limit)
