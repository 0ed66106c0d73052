"""Why a caller is not recognised. It is for the log: the caller is not told."""

from __future__ import annotations


class UnrecognisedError(Exception):
    """The credentials are missing or wrong. The message holds nothing of them."""
