"""Errors of authentication. They are for the log: the caller is not told."""

from __future__ import annotations


class UnauthenticatedError(Exception):
    """The credentials are missing or wrong. The message holds nothing of them."""
