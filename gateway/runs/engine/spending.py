"""What a run has cost so far, as far as this process can know."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.judge.usage import add_usage, total_usage


class Look:
    """A look at the store."""

    def __init__(self, known: Usage) -> None:
        self.known = known
        """What the store knows."""


class Spending:
    """What the store knows was spent, and what was spent here since.

    What was written while the store was read is counted twice until the next look, never left out.

    Args:
        known: What the store knows.
    """

    def __init__(self, known: Usage) -> None:
        self.total = known
        """What is spent, by all that is known."""
        self._known = known
        self._since: deque[Usage] = deque()
        self._written = 0

    def add(self, usage: Usage) -> None:
        """Notes what a sample cost that is not written yet."""
        self._since.append(usage)
        self.total = add_usage(self.total, usage)

    def written(self, count: int) -> None:
        """Notes that the oldest of what was noted are in the store."""
        self._written += count

    @contextmanager
    def looking(self) -> Iterator[Look]:
        """Reads within a ``with`` block what the store knows."""
        contained = self._written
        look = Look(self._known)
        yield look
        self._known = look.known
        for _ in range(contained):
            self._since.popleft()
        self._written -= contained
        self.total = add_usage(self._known, total_usage(self._since))
