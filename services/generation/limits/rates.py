"""How many calls and tokens a minute a model takes: as configured, and as its provider states.

All times are seconds on one clock; calls count from when they are sent.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from services.generation.limits.stated_quotas import PERIOD, Quotas, StatedQuota

MARGIN = 1.004
"""Windows count as slightly longer than their period: requests at its very end are often refused."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Configured rates. None: not configured."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    """Prompt and completion tokens together."""


@dataclass(slots=True)
class SlidingWindow:
    """A configured limit: no more than this in any one period."""

    limit: float
    period: float = PERIOD
    _log: deque[tuple[float, float]] = field(default_factory=deque)
    _sum: float = 0.0

    def delay(self, now: float, cost: float) -> float:
        """Seconds until ``cost`` fits; 0: now."""
        self._forget(now)
        excess = self._sum + min(cost, self.limit) - self.limit
        if excess <= 1e-9:
            return 0.0
        for at, taken in self._log:
            excess -= taken
            if excess <= 1e-9:
                return max(0.0, at + self.period * MARGIN - now)
        return 0.0

    def take(self, now: float, cost: float) -> None:
        """Counts a request."""
        self._log.append((now, cost))
        self._sum += cost

    def correct(self, now: float, sent: float, difference: float) -> None:
        """Corrects the cost of a call that was sent at that moment, where it is still counted."""
        if sent > now - self.period:
            self.take(sent if not self._log else max(sent, self._log[-1][0]), difference)

    def used(self, now: float) -> float:
        """What was sent in the last period."""
        self._forget(now)
        return self._sum

    def _forget(self, now: float) -> None:
        while self._log and self._log[0][0] <= now - self.period * MARGIN:
            self._sum -= self._log.popleft()[1]


class _Sent(NamedTuple):
    """A call that was sent."""

    number: int
    at: float
    tokens: float
    requests_refilled: bool
    """Whether the stated quota admitted it because of the refill alone."""
    tokens_refilled: bool


_TOGETHER = 0.25
"""Calls sent within this many seconds may arrive in another order."""


class ModelRates:
    """The rates of one model, configured and stated.

    Args:
        configured: The configured rates.
        period: The minute, in seconds; tests shorten it.
    """

    def __init__(self, configured: Rates, period: float = PERIOD) -> None:
        self._requests = SlidingWindow(configured.requests_per_minute or math.inf, period)
        self._tokens = SlidingWindow(configured.tokens_per_minute or math.inf, period)
        self._stated_requests, self._stated_tokens = StatedQuota(period), StatedQuota(period)
        self._sent: deque[_Sent] = deque(maxlen=4096)

    def delay(self, now: float, tokens: float) -> float:
        """Seconds until a call of that many tokens may be sent; 0: now."""
        return max(
            self._requests.delay(now, 1),
            self._tokens.delay(now, tokens),
            self._stated_requests.delay(now, 1),
            self._stated_tokens.delay(now, tokens),
        )

    def sent(self, now: float, number: int, tokens: float) -> None:
        """Counts a call that is sent; numbers rise."""
        self._requests.take(now, 1)
        self._tokens.take(now, tokens)
        requests_refilled = self._stated_requests.take(now, 1)
        tokens_refilled = self._stated_tokens.take(now, tokens)
        self._sent.append(_Sent(number, now, tokens, requests_refilled, tokens_refilled))

    def answered(self, now: float, sent: float, number: int, excess: float, quotas: Quotas | None) -> None:
        """Takes what an answer tells.

        Args:
            now: When it came.
            sent: When the call was sent.
            number: The number of the call.
            excess: How many more tokens it took than were counted for it.
            quotas: What the response states.
        """
        self._tokens.correct(now, sent, excess)
        if quotas is not None:
            self._state(now, sent, number, quotas)

    def explains(self, now: float, sent: float, number: int, tokens: float, quotas: Quotas | None) -> bool:
        """Whether a refusal states an exhausted quota. What it states is taken."""
        if quotas is None:
            return False
        self._state(now, sent, number, quotas)
        call = next((call for call in reversed(self._sent) if call.number == number), None)
        refilled = (call is not None and call.requests_refilled, call is not None and call.tokens_refilled)
        explained = False
        for quota, stated, on_refill, cost in (
            (quotas.requests, self._stated_requests, refilled[0], 1.0),
            # How many tokens a call takes is an estimate.
            (quotas.tokens, self._stated_tokens, refilled[1], 1.2 * tokens),
        ):
            if quota is not None and quota.remaining < cost:
                stated.lower(now, quota.remaining)
                if on_refill:
                    stated.contradicted(now)
                explained = explained or stated.delay(now, cost) > 0
        return explained

    def requests(self, now: float) -> tuple[int, float | None]:
        """The requests of the last minute, and the most of a minute. None: no limit of requests is known."""
        made = round(self._requests.used(now))
        if math.isfinite(self._requests.limit):
            return made, self._requests.limit
        stated = self._stated_requests.used(now)
        return (made, None) if stated is None else (round(stated[0]), stated[1])

    def _state(self, now: float, sent: float, number: int, quotas: Quotas) -> None:
        calls = tokens = 0.0
        for other in reversed(self._sent):
            if other.at < sent - _TOGETHER:
                break
            if other.number != number:
                calls += 1
                tokens += other.tokens
        if quotas.requests is not None:
            self._stated_requests.state(now, sent, quotas.requests, calls)
        if quotas.tokens is not None:
            self._stated_tokens.state(now, sent, quotas.tokens, tokens)
