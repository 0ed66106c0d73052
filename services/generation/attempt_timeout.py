"""The time limit of an attempt."""

from __future__ import annotations

from collections import deque

_SHORTEST_SECONDS = 0.25
"""No shorter limit is learned: a busy machine delays answers for as long."""


class AttemptTimeout:
    """The time limit of the next attempt: a multiple of the longest of the latest answers.

    A call that takes far longer than all others is taken to hang. The configured limit applies until enough
    answers are known, and is the maximum. A limit that passes without an
    answer, to this call or another, is doubled, up to eightfold.
    """

    _ENOUGH = 20

    def __init__(self, configured: float) -> None:
        self._configured = configured
        self._factor = 1
        self.answers = 0
        self._latest: deque[float] = deque(maxlen=50)

    @property
    def seconds(self) -> float:
        most = self._configured * self._factor
        if len(self._latest) < self._ENOUGH:
            return most
        return min(most, max(self._configured / 10, 4 * max(self._latest), _SHORTEST_SECONDS))

    def answered(self, seconds: float) -> None:
        """Records the duration of an answer."""
        self._latest.append(seconds)
        self.answers += 1

    def passed(self, answers: int) -> None:
        """Takes that a limit passed without an answer.

        Args:
            answers: How many answers there were when the attempt began. With more, it alone hangs:
                the configured limit applies, not more.
        """
        if self.answers == answers:
            self._factor = min(8, 2 * self._factor)
        self._latest.clear()

    def is_long(self, seconds: float) -> bool:
        """Whether an attempt of this duration without an answer counts as a failure of the provider."""
        return seconds >= self._configured / 10
