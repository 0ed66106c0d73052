"""What the samples of a run fail of at this gateway, or wait for, while none of them succeeds."""

from __future__ import annotations

import time

from gateway.judges.pending_calls import PendingCalls
from gateway.runs.records import Trouble

TELL_AFTER_SECONDS = 2.0
"""What passes sooner is not told: single attempts fail in every long run."""
TELL_EVERY_SECONDS = 2.0
"""The least time between two reports: each is a transaction, though none that a run without trouble has."""
SILENT_SECONDS = 60.0
"""After so long without the end of an attempt it is told what is waited for, and again every so often."""


class TroubleLog:
    """Collects the failed attempts at samples of one run, until one succeeds.

    Attributes:
        pending: The calls to judges that the samples wait for.
    """

    def __init__(self) -> None:
        self.pending = PendingCalls()
        self._began: float | None = None
        self._told = 0.0
        self._untold = 0
        self._description = ""
        self._next: float | None = None
        self._heard = time.monotonic()
        """When an attempt last ended."""

    def failed(self, description: str, wait: float | None = None) -> None:
        """Notes an attempt that failed.

        Args:
            description: What it failed of, in words.
            wait: Seconds until the sample is tried again. None: it is not.
        """
        now = self._heard = time.monotonic()
        if self._began is None:
            self._began = now
        self._untold += 1
        self._description = description
        if self._next is not None and self._next <= now:
            self._next = None
        if wait is not None:
            self._next = now + wait if self._next is None else min(self._next, now + wait)

    def succeeded(self) -> None:
        """Notes an attempt that did not fail: what failed before it is over."""
        self._heard = time.monotonic()
        self._began = None
        self._untold = 0
        self._next = None

    def report(self) -> Trouble | None:
        """What is to be told now; None where there is nothing new, or it is too soon."""
        now = time.monotonic()
        if self._began is None or not self._untold:
            return self._silence(now)
        if now - self._began < TELL_AFTER_SECONDS or now - self._told < TELL_EVERY_SECONDS:
            return None
        wait = None if self._next is None else self._next - now
        trouble = Trouble(self._description, self._untold, now - self._began, wait)
        self._told, self._untold = now, 0
        return trouble

    def _silence(self, now: float) -> Trouble | None:
        if now - max(self._heard, self._told) < SILENT_SECONDS or not (waits := self.pending.describe()):
            return None
        self._told = now
        return Trouble(waits, 0, now - self._heard, None)
