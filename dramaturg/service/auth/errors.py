"""Errors of authentication. They are logged and not sent to the caller."""

from __future__ import annotations


class UnauthenticatedError(Exception):
    """The credentials are missing or invalid. The message contains no part of them."""
