"""Tells an outage, which is waited out, from a judge that will not come back."""

from __future__ import annotations

import time


class Outage:
    """The time since samples began to fail for reasons that may pass, without one that did not.

    A judge or generation service that restarts fails every sample for some seconds. Tries that are so used
    up would leave abstentions in the results that depend on when it happened. One that stays away must not
    hold up every sample for as long, so the time is counted once for all samples of the process.

    Args:
        seconds: How long an outage is waited out.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began: float | None = None

    def begin(self) -> None:
        """Notes a sample that failed for a reason that may pass."""
        if self._began is None:
            self._began = time.monotonic()

    def end(self) -> None:
        """Notes a sample that did not."""
        self._began = None

    def holds_up(self, first_failed: float) -> bool:
        """Whether a sample is to be tried further.

        Args:
            first_failed: When it first failed, on the clock of ``time.monotonic``.
        """
        if self._began is None:
            return False
        return time.monotonic() - min(self._began, first_failed) < self._seconds
