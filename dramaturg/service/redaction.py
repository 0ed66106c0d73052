"""Removes secrets from texts that callers and logs show."""

from __future__ import annotations

from collections.abc import Iterable

LEAST_SECRET_LENGTH = 8
"""The length of the shortest secret that is removed, in characters. Shorter ones are no secrets but
placeholders, such as "none", and their letters are part of other words."""
REDACTED = "[key]"
"""What stands in place of a secret."""


def secrets_of(values: Iterable[str]) -> list[str]:
    """The values that are removed from texts, the longest first: one may be a part of another."""
    return sorted({value for value in values if len(value) >= LEAST_SECRET_LENGTH}, key=len, reverse=True)


def redact(text: str, secrets: Iterable[str]) -> str:
    """A text without secrets.

    Args:
        text: The text.
        secrets: The secrets, as ``secrets_of`` returns them.
    """
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text
