"""A clock for what waits long."""

from __future__ import annotations


class Clock:
    """Stands in for the module ``time``; stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        """The time, in seconds."""
        return self.now
