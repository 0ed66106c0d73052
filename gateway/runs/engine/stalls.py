"""Tells a run that stands still, since the engine fails at it, from one that moves."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gateway.runs.records import Trouble

FIRST_PAUSE_SECONDS = 1.0
"""The pause after the first failure; doubled with each further look that sees one."""
LONGEST_PAUSE_SECONDS = 30.0


class Stall:
    """The time since the engine began to fail at a run without a sample done in between.

    A sample that cannot be evaluated fails alone. A batch, or a conductor, fails where the engine itself
    cannot go on: a fault of ours, or a gateway whose installation is broken while others replace it. Such may
    pass, so that it is tried again, but not at once and not for ever.

    Args:
        seconds: How long a run may stand still.
        what: What fails, in words, such as "its batches fail".
    """

    def __init__(self, seconds: float, what: str) -> None:
        self._seconds = seconds
        self._what = what
        self._done: int | None = None
        self.forget()

    def forget(self) -> None:
        """Forgets what failed."""
        self._began = 0.0
        self._pause = 0.0
        self._resumes = 0.0
        self._error = ""

    def note(self, done: int, errors: Sequence[str]) -> None:
        """Notes how a run stands.

        Args:
            done: How many of its samples are done.
            errors: What failed since the last look, in words.
        """
        now = time.monotonic()
        if done != self._done:
            self._done = done
            self.forget()
        if not errors:
            return
        if not self._error:
            self._began = now
        self._error = errors[-1]
        self._pause = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, 2 * self._pause))
        self._resumes = now + self._pause

    def pause(self) -> float:
        """For how many seconds it is not to be tried again; 0: it may be."""
        return max(0.0, self._resumes - time.monotonic())

    def trouble(self, failures: int) -> Trouble:
        """What failed, as it is told of the run.

        Args:
            failures: How many failures were noted since it was told before.
        """
        lasted = time.monotonic() - self._began
        return Trouble(f"{self._what}: {self._error}", failures, lasted, self.pause())

    def reason(self) -> str:
        """Why the run has stood still for too long, in words; empty: it has not."""
        if not self._error or time.monotonic() - self._began < self._seconds:
            return ""
        return (
            f"no sample was done in {self._seconds:g} s, since {self._what}: {self._error}. "
            "Its results are kept; rerun what is missing"
        )
