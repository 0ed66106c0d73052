"""How many calls and tokens a minute a model takes: as configured, as its provider states, or as learned.

All times are seconds on one clock; calls count from when they are sent.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from services.generation.limits.learned_pace import LearnedPace
from services.generation.limits.sliding_window import PERIOD, SlidingWindow
from services.generation.limits.stated_quotas import Quotas, StatedQuota


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
    """All limits of one model: configured, stated and learned.

    Args:
        requests_per_minute: The configured limit. None: none is configured.
        tokens_per_minute: The configured limit of prompt and completion tokens together. None: none is
            configured.
        period: The length of that minute, in seconds; tests shorten it.
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        period: float = PERIOD,
    ) -> None:
        self._period = period
        self._requests = SlidingWindow(requests_per_minute or math.inf, period)
        self._tokens = SlidingWindow(tokens_per_minute or math.inf, period)
        self._stated_requests, self._stated_tokens = StatedQuota(period), StatedQuota(period)
        self._pace = LearnedPace(period)
        self._sent: deque[_Sent] = deque(maxlen=4096)

    def delay(self, now: float, tokens: float) -> float:
        """Seconds until a call of that many tokens may be sent; 0: now."""
        return max(
            self._requests.delay(now, 1),
            self._tokens.delay(now, tokens),
            self._stated_requests.delay(now, 1),
            self._stated_tokens.delay(now, tokens),
            self._pace.delay(now),
        )

    def sent(self, now: float, number: int, tokens: float) -> None:
        """Counts a call that is sent; numbers rise."""
        self._requests.take(now, 1)
        self._tokens.take(now, tokens)
        requests_refilled = self._stated_requests.take(now, 1)
        tokens_refilled = self._stated_tokens.take(now, tokens)
        self._sent.append(_Sent(number, now, tokens, requests_refilled, tokens_refilled))
        self._pace.sent(now, number)

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

    def discount(self, sent: float) -> None:
        """Takes a call out of the count of those that the model took; every refused call must be."""
        self._pace.discount(sent)

    @property
    def is_learned(self) -> bool:
        """Whether a limit was learned from refusals."""
        return self._pace.is_learned

    def expects_refusal(self, number: int) -> bool:
        """Whether a learned limit accounts for the refusal of a call."""
        return self._pace.expects_refusal(number)

    def accepted(self, sent: float, number: int) -> None:
        """Takes that a call was not refused."""
        self._pace.accepted(sent, number)

    def refused(
        self, now: float, sent: float, number: int, retry_after: float | None, random_share: float
    ) -> None:
        """Learns from a refusal that shows an exhausted rate and states no quota."""
        self._pace.refused(now, sent, number, retry_after, random_share)

    def try_pacing(self, now: float) -> None:
        """Spaces calls evenly for a while, to see whether that ends the refusals."""
        self._pace.try_pacing(now)

    def made(self, now: float) -> int:
        """The requests of the last minute."""
        return round(self._requests.used(now))

    def requests(self, now: float) -> tuple[int, float] | None:
        """The requests of the last minute, and the limit. None: no limit of requests is known."""
        made = self.made(now)
        if math.isfinite(self._requests.limit):
            return made, self._requests.limit
        learned = self._pace.per_minute()
        if learned is not None:
            return made, learned
        stated = self._stated_requests.used(now)
        return None if stated is None else (round(stated[0]), stated[1])

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
