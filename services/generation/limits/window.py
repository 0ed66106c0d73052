"""The window of a model: how many calls may be under way at once, and when the next may go.

AIMD with slow start, in the terms of RFC 5681. A call is acknowledged when it is answered, or when it was not
refused for a while: providers refuse at once.

- Slow start: the window grows by one with every acknowledged call, so it doubles in each round.
- Additive increase: above the threshold it grows by one in each round of answers. Only answers during which
  calls waited count: a window that is not used shows nothing.
- Decrease: a refused call is no longer under way, and the provider keeps no queue. The window falls to the
  calls that are left. (TCP halves it, to drain the queues on the way.)
- Timeout: refusals that leave nothing under way show a limit of the rate. The window closes for a pause, as
  long as it takes for ten answers a refusal. Then single calls go, with pauses that double as the timer of
  RFC 6298, until one is acknowledged. Slow start begins again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from services.generation.limits.rates import MARGIN
from services.generation.limits.stated_quotas import PERIOD


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """The range of the window."""

    minimum: int = 1
    start: int = 64
    """The most calls before the first is answered. A provider that lets calls wait accepts any number."""
    maximum: int = 256


INITIAL = 8
"""The calls that are sent before any is acknowledged: a provider that only fails is asked as often before the
circuit breaker stops the calls. (RFC 6928: 10 segments.)"""
_ANSWERS = 10
"""The answers for each refusal: a probe or pause every ten answers keeps retries at the tenth of all calls
that Google's "Site Reliability Engineering" (chapter 21, "Handling Overload") allows a client."""
_TIMER = 1 / 60
"""The first pause, and the least time after which a call that is not refused is acknowledged, as a share of
the minute: the initial timer of RFC 6298, one second."""
_LONGEST_PAUSE = 1 / 6
"""The longest pause between answers, as a share of the minute. A model that takes one call a second has ten
answers after it. Longer ones would stop one that refuses at random: the two are not told apart."""
_IN_A_ROW = 3
"""The refusals in a row with nothing under way that show a limit of the rate: three duplicate ACKs show a
loss in RFC 5681. Fewer come at random."""


class Window:
    """The window of one model. All times are seconds on one clock; calls have rising numbers.

    Args:
        bounds: The range of the window.
        period: The minute of limits; tests shorten it.

    Attributes:
        under_way: The calls under way.
    """

    def __init__(self, bounds: WindowBounds, period: float = PERIOD) -> None:
        self._bounds = bounds
        self._period = period
        self._first_pause = period * _TIMER
        self._slowest_refusal = 0.0
        """How long refusals take lately, in seconds."""
        self.under_way = 0
        self._size = float(min(INITIAL, bounds.start))
        self._threshold = math.inf
        """Below it the window is in slow start."""
        self._is_answering = False
        """Whether a call was ever answered."""
        self._round = 0
        """Answers since the window changed."""
        self._in_a_row = 0
        """Refusals that left nothing under way, since a call was acknowledged."""
        self._timeouts = 0
        self._boundary = 0
        """The number of the last call sent before the window closed, or before it fell after a timeout."""
        # The cycle of a limited rate: open, then closed until a call is acknowledged.
        self._is_closed = False
        self._closed_until = -math.inf
        self._pause = self._first_pause
        self._probes = 0
        """Calls refused since the window closed."""
        self._answers = 0
        """Answers since the window opened."""
        self._opened = math.nan
        """When it opened."""
        self._minute_ends = -math.inf
        """A minute after it opened, and then after every further minute in which it stayed closed."""
        self._work = 0.0
        """The sum of the seconds that calls were under way since then."""
        self._counted = 0.0
        """The time up to which they are summed."""

    @property
    def size(self) -> int:
        """The most calls under way."""
        return max(self._bounds.minimum, int(self._size))

    @property
    def timer(self) -> float:
        """Seconds after which a call that is not refused is acknowledged: twice what refusals take."""
        return max(self._first_pause, 2 * self._slowest_refusal)

    def delay(self, now: float) -> float:
        """Seconds until the pause ends; 0: there is none."""
        return max(0.0, self._closed_until - now)

    def sent(self, now: float) -> None:
        """Counts a call that is sent."""
        if math.isnan(self._opened):
            self._opened = self._counted = now
            self._minute_ends = now + self._period * MARGIN
        self._count(now, 1)

    def ended(self, now: float) -> None:
        """Takes a call that ended out of those under way. How it ended is told next."""
        self._count(now, -1)

    def acknowledged(self, now: float, sent: float, number: int, *, waiting: bool) -> None:
        """Takes that a call is known to be accepted.

        Args:
            now: The time.
            sent: When the call was sent.
            number: Its number.
            waiting: Whether others wait.
        """
        self._in_a_row = 0
        if self._is_closed and number > self._boundary:
            self._open(now, sent)
        most = math.inf if self._is_answering else self._bounds.start
        if waiting and not self._is_closed and self._size < min(self._threshold, most):
            self._raise()

    def answered(self, *, waiting: bool) -> None:
        """Takes an answer."""
        self._is_answering = True
        self._timeouts = max(0, self._timeouts - 1)
        self._answers += 1
        if not waiting or self._is_closed or self._size < self._threshold:
            return
        self._round += 1
        if self._round >= max(_ANSWERS, self._size):
            self._raise()

    def refused(
        self, now: float, sent: float, number: int, last_sent: int, retry_after: float | None
    ) -> None:
        """Takes a refusal.

        Args:
            now: The time.
            sent: When the call was sent.
            number: The number of the call.
            last_sent: The number of the last call sent.
            retry_after: How long the provider asks to wait, in seconds, if it says.
        """
        self._slowest_refusal = max(0.9 * self._slowest_refusal, now - sent)
        if retry_after:
            self._closed_until = max(self._closed_until, now + retry_after)
        if number <= self._boundary and self._is_closed:
            return
        self._round = 0
        self._in_a_row = 0 if self.under_way else self._in_a_row + 1
        if self._is_closed:
            self._probes += 1
            self._close(now, last_sent, retry_after)
        elif self._shows_rate(retry_after):
            if not retry_after:
                due = _ANSWERS * (max(1, self._in_a_row) + self._probes)
                self._pause *= min(2.0, max(0.5, due / max(1, self._answers)))
                self._pause = max(self._first_pause, min(self._pause, _LONGEST_PAUSE * self._period))
            self._probes = 0
            self._close(now, last_sent, retry_after)
        else:
            self._size = self._threshold = float(max(1, min(self.under_way, self.size)))

    def timed_out(self, number: int, answered: int, last_sent: int) -> None:
        """Takes that a call got no answer in time.

        If fewer were answered meanwhile than were not, the provider lets too many wait: the window falls to
        half of what it answers in that time.

        Args:
            number: The number of the call.
            answered: How many calls were answered meanwhile.
            last_sent: The number of the last call sent.
        """
        if number <= self._boundary:
            return
        self._timeouts += 1
        if self._timeouts > answered:
            self._timeouts, self._boundary = 0, last_sent
            self._size = self._threshold = max(1.0, min(self._size, answered or self._size) / 2)

    def _shows_rate(self, retry_after: float | None) -> bool:
        """Whether the refusal shows a limit of the rate, not of the calls at once."""
        if self._pause > self._first_pause:  # such a limit is known
            return True
        return self._in_a_row >= _IN_A_ROW or (bool(retry_after) and not self.under_way)

    def _close(self, now: float, last_sent: int, retry_after: float | None) -> None:
        if now >= self._minute_ends:
            self._minute_ends, self._probes = now + self._period, 0
        # A window of calls a minute takes the first of them again when the minute is over.
        wait = retry_after or min(self._pause * 2.0**self._probes, self._minute_ends - now)
        self._closed_until = max(self._closed_until, now + wait)
        self._is_closed, self._boundary = True, last_sent
        self._size = 1.0

    def _open(self, now: float, sent: float) -> None:
        # By Little's law a rate keeps as many calls under way, on average, as it admits at its pace.
        self._count(now, 0)
        self._threshold = max(1.0, self._work / (now - self._opened))
        self._is_closed = False
        self._opened, self._minute_ends = sent, sent + self._period * MARGIN
        self._work, self._answers = 0.0, 0

    def _raise(self) -> None:
        self._size = min(self._size + 1, float(self._bounds.maximum))
        self._round = 0

    def _count(self, now: float, change: int) -> None:
        self._work += self.under_way * (now - self._counted)
        self._counted = now
        self.under_way += change
