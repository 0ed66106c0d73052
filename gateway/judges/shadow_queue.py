"""The queue of a shadow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ShadowQueue:
    """Counts the candidates that wait for a shadow or are in its calls.

    Args:
        size: The most candidates.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = 0

    @contextmanager
    def hold(self, candidates: int) -> Iterator[bool]:
        """Holds places within a ``with`` block. Yields whether there are as many; else none is held."""
        fits = self._held + candidates <= self._size
        held = candidates if fits else 0
        self._held += held
        try:
            yield fits
        finally:
            self._held -= held
