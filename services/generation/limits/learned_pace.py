"""The pace of requests that a model takes, learned from refusals."""

from __future__ import annotations

import math
from collections import deque
from enum import Enum, auto

from services.generation.limits.sliding_window import MARGIN, PERIOD

_QUICK_GROWTH = 1.3
"""By call, until the first refusal."""
_SETTLED = 8
"""From this number of calls between two refusals their rate is the estimate."""


class _Kind(Enum):
    OPEN = auto()
    PROBING = auto()
    PACED = auto()
    WINDOW = auto()


class LearnedPace:
    """The pace of requests that a model takes, learned from its refusals.

    Args:
        period: The period of the limits, in seconds.
    """

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._kind = _Kind.OPEN
        self._log: deque[float] = deque()
        """When the calls of the last period were sent, refused ones left out."""
        self._rate = math.inf
        self._next = -math.inf
        self._limit = 0
        self._taken = 0
        """Calls taken before the first refusal."""
        self._emptied = -math.inf
        """When the last call was sent that was refused."""
        self._closed_at = -math.inf
        """When it turned out that calls are refused."""
        self._since: deque[float] = deque(maxlen=10_000)
        """When calls were sent since then, refused ones left out."""
        self._exact = False
        self._measured = 0
        """How many calls the estimate of the rate rests on."""
        self._backoff = 0.0
        self._blocked_until = -math.inf
        self._probe: float | None = None
        self._grace = period / 120
        """How long a refusal takes to arrive: a call that is not refused by then counts as taken."""
        self._lowest = 0
        """The latest limit that was learned."""
        self._raised = -math.inf
        self._patience = 2
        """After this many periods without a refusal the limit is raised."""

    def delay(self, now: float) -> float:
        """Seconds until a call may be sent; 0: now."""
        if now < self._blocked_until:
            return self._blocked_until - now
        if self._kind is _Kind.PROBING and self._probe is not None:
            if now < self._probe + self._grace:
                return self._probe + self._grace - now
            self._taken_again(self._probe)
        if self._kind is _Kind.PACED:
            return max(0.0, self._next - now)
        if self._kind is _Kind.WINDOW:
            self._forget(now)
            if now >= self._raised + self._patience * self._period:
                self._limit += max(1, self._limit // 50)
                self._raised = now
            if len(self._log) >= self._limit:
                return max(0.0, self._log[len(self._log) - self._limit] + self._period * MARGIN - now)
        return 0.0

    def sent(self, now: float) -> None:
        """Counts a call that is sent."""
        self._forget(now)
        self._log.append(now)
        if self._kind is _Kind.PROBING:
            self._probe = now
        elif self._kind is _Kind.PACED:
            self._since.append(now)
            count = len(self._since)
            if not self._exact:
                self._rate *= _QUICK_GROWTH
                if count > 40:  # faster than any limit by now
                    self._kind = _Kind.OPEN
            elif count % 5 == 0 and count >= _SETTLED:
                # The less the estimate rests on, and the longer nothing is refused, the sooner it is raised.
                self._rate *= 1 + min(0.15, max(1.0, count / 20) / (self._measured + 5))
            self._next = max(self._next, now) + 1 / self._rate

    def discount(self, sent: float) -> None:
        """Takes a call out of the count that was refused; every refused call must be."""
        for log in (self._log, self._since):
            if sent in log:
                log.remove(sent)
        if self._kind is _Kind.PROBING and sent <= self._closed_at:
            self._taken = max(0, self._taken - 1)

    def refused(self, now: float, sent: float, retry_after: float | None) -> None:
        """Learns from a call that was refused, after [discount].

        Args:
            now: When the refusal came.
            sent: When the call was sent.
            retry_after: How long the provider asks to wait, if it says.
        """
        self._grace = max(self._grace, min(2 * (now - sent), self._period / 12))
        if self._kind is _Kind.OPEN:
            self._close(now, sent, retry_after)
        elif self._kind is _Kind.PROBING:
            if self._probe == sent:
                self._probe = None
                self._backoff = min(2 * self._backoff, self._period)
                wait = self._backoff
                if self._log:  # if it is a window, it opens when its first call leaves it
                    opens = self._log[0] + self._period * MARGIN - now
                    wait = min(wait, opens) if opens > 0 else wait
                self._block(now, retry_after, wait)
        elif sent > self._emptied:
            if self._kind is _Kind.WINDOW:
                self._full(now, sent, retry_after)
            else:
                self._measure(now, sent, retry_after)
        if retry_after is not None:
            self._block(now, retry_after, 0.0)

    @property
    def closed(self) -> bool:
        """Whether calls were refused and a pace is known or looked for."""
        return self._kind is not _Kind.OPEN

    def per_minute(self) -> float | None:
        """The requests a minute that the model takes. None: no limit is known."""
        if self._kind is _Kind.PACED:
            return self._rate * 60
        if self._kind is _Kind.WINDOW:
            return self._limit * 60 / self._period
        return max(1, self._taken) * 60 / self._period if self._kind is _Kind.PROBING else None

    def _close(self, now: float, sent: float, retry_after: float | None) -> None:
        self._forget(now)
        self._kind, self._probe = _Kind.PROBING, None
        self._taken = len(self._log)
        self._emptied, self._closed_at = sent, now
        shortest, longest = self._period / 300, self._period / 60
        self._backoff = min(longest, max(shortest, self._period / max(1, self._taken)))
        self._block(now, retry_after, self._backoff)

    def _full(self, now: float, sent: float, retry_after: float | None) -> None:
        self._forget(now)
        if len(self._log) < 0.9 * self._lowest:
            self._close(now, sent, retry_after)
            return
        self._limit = self._lowest = max(1, min(self._limit, sum(at <= sent for at in self._log)))
        self._emptied = self._raised = sent
        self._patience *= 2

    def _measure(self, now: float, sent: float, retry_after: float | None) -> None:
        elapsed = sent - self._emptied
        count = sum(at <= sent for at in self._since)
        if count >= _SETTLED and elapsed > 0:
            self._rate = (count - 1) / elapsed
        elif count < 2 and self._exact:
            self._close(now, sent, retry_after)
            return
        else:
            measured = count / elapsed if elapsed > 0 else 0.0
            self._rate = min(0.95 * self._rate, max(measured, 0.7 * self._rate))
        self._exact, self._measured = True, count
        self._emptied = sent
        while self._since and self._since[0] <= sent:
            self._since.popleft()
        self._next = sent + 1 / self._rate
        self._block(now, retry_after, 0.0)

    def _taken_again(self, probe: float) -> None:
        closed = probe - self._emptied
        self._probe = None
        if closed >= self._period / 4:
            self._kind, self._raised = _Kind.WINDOW, probe
            self._limit = self._lowest = max(1, self._taken)
            self._patience = 2
            if len(self._log) > self._limit:
                self._log = deque([probe])
        else:
            self._kind, self._exact = _Kind.PACED, False
            self._rate = max(1 / closed, 0.8 * self._taken / self._period)
            self._since.clear()
            self._since.append(probe)
            self._next = probe + 1 / self._rate

    def _block(self, now: float, retry_after: float | None, least: float) -> None:
        wait = least if retry_after is None else retry_after
        self._blocked_until = max(self._blocked_until, now + wait)

    def _forget(self, now: float) -> None:
        while self._log and self._log[0] <= now - self._period * MARGIN:
            self._log.popleft()
