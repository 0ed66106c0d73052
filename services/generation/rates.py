"""How many calls and tokens a minute a model takes: as configured, as its provider states, or as learned.

A provider limits requests, tokens or both over a period, in one of two ways. A token bucket refills
steadily. A window admits a number of calls in each period and none after that. Refusals tell neither the
kind nor the number, so both are learned from when calls were refused and taken again:

- A model that takes calls again soon after a refusal has a bucket. Calls are then spaced evenly. Between two
  refusals the bucket was empty twice, so the calls taken in between are its refill (the estimate is exact to
  one call), and the pace rises slowly until the next refusal.
- A model that stays closed for a quarter of the period or longer has a window. As many calls as it took
  before it closed are then sent in any one period, and slightly more after two periods without a refusal.

All times are seconds on one clock; calls count from when they are sent.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

PERIOD = 60.0
"""Providers state their limits a minute."""

_QUICK_GROWTH = 1.3
"""By call, until the first refusal."""
_MARGIN = 1.004
"""Windows are taken for slightly longer than their period: what is sent on the second is often refused."""
_SETTLED = 8
"""From this number of calls between two refusals their rate is the estimate."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit as a provider states it with a response."""

    remaining: float
    """What is left of it."""
    limit: float | None = None
    """The whole of it. None: not stated."""
    reset: float | None = None
    """Seconds until all of it is available again. None: not stated."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits that a response states."""

    requests: Quota | None = None
    tokens: Quota | None = None


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
                return max(0.0, self._log[len(self._log) - self._limit] + self._period * _MARGIN - now)
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
                    opens = self._log[0] + self._period * _MARGIN - now
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
        while self._log and self._log[0] <= now - self._period * _MARGIN:
            self._log.popleft()


class StatedQuota:
    """A quota that the provider states with its responses, counted down between them."""

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._known = False
        self._level = math.inf
        self._limit = math.inf
        self._refill = 0.0
        self._at = -math.inf
        self._reset_at = math.inf
        self._steady = True
        self._doubted = -math.inf
        self._slack = 1.2
        """How much of the cost of a call must have been refilled, as a factor; more after every refusal."""
        self._certain = math.inf
        """What is left without any refill."""

    def state(self, now: float, sent: float, quota: Quota, unseen: float) -> None:
        """Takes a statement.

        Args:
            now: When the response came.
            sent: When its call was sent; the statement is of a moment between the two.
            quota: What it states.
            unseen: What was sent with the call that the response answers, or later: the statement may leave
                it out.
        """
        own = self._level_at(now) if self._known else -math.inf
        self._known = True
        least = quota.remaining - unseen
        refilled = self._refill * (now - sent) if self._steady else 0.0
        self._level = self._certain = min(max(own, least), quota.remaining + refilled)
        self._limit = quota.limit if quota.limit is not None and quota.limit > 0 else math.inf
        self._at = now
        self._reset_at = math.inf if quota.reset is None else now + quota.reset
        used = self._limit - quota.remaining
        self._refill = 0.0
        if math.isfinite(used):
            self._refill = used / quota.reset if quota.reset and used > 0 else self._limit / self._period

    def lower(self, now: float, level: float) -> None:
        """Takes what is left according to a refusal: no call sent since the refused one was accepted."""
        self._level, self._at = min(self._level_at(now), level), now
        self._slack = min(3.0, self._slack + 0.3)

    def contradicted(self, now: float) -> None:
        """Learns that a call was refused which a steady refill would have admitted.

        The second time the quota is taken for a window. Calls sent in the same moment count once.
        """
        if now - self._doubted > self._period / 60:
            self._steady = self._doubted == -math.inf
            self._doubted = now

    def delay(self, now: float, cost: float) -> float:
        """Seconds until ``cost`` is available; 0: now."""
        if not self._known:
            return 0.0
        cost = min(cost, self._limit)
        level = self._level_at(now)
        if level >= cost:
            return 0.0
        until_reset = self._reset_at - now
        if self._steady and self._refill > 0:
            # Slightly late rather than early: clocks and counts differ.
            return min((self._slack * cost - level) / self._refill, until_reset)
        return max(0.0, until_reset) if math.isfinite(until_reset) else 0.0

    def take(self, now: float, cost: float) -> bool:
        """Counts what is sent. Returns whether it was admitted because of the refill alone."""
        self._level = self._level_at(now) - cost
        self._at = now
        self._certain -= cost
        return self._certain < 0

    def used(self, now: float) -> tuple[float, float] | None:
        """What is used of the limit, and the limit. None: it is not stated."""
        if not self._known or not math.isfinite(self._limit):
            return None
        return max(0.0, self._limit - self._level_at(now)), self._limit

    def _level_at(self, now: float) -> float:
        if now >= self._reset_at:
            self._level, self._at, self._reset_at = self._limit, now, now + self._period
            self._certain = self._limit
        if not self._steady or not self._refill:
            return self._level
        return min(self._limit, self._level + self._refill * (now - self._at))


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
                return max(0.0, at + self.period * _MARGIN - now)
        return 0.0

    def take(self, now: float, cost: float) -> None:
        """Counts what is sent."""
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
        while self._log and self._log[0][0] <= now - self.period * _MARGIN:
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
        self._pace.sent(now)

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
    def learned(self) -> bool:
        """Whether a limit was learned from refusals."""
        return self._pace.closed

    def refused(self, now: float, sent: float, retry_after: float | None) -> None:
        """Learns from a refusal that states no exhausted quota."""
        self._pace.refused(now, sent, retry_after)

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
