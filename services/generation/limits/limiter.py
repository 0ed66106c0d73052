"""Which calls to a provider are sent, and when.

Three things are learned from refusals:

- How many calls the provider serves at once: [services.generation.limits.concurrency].
- Whether refusals show an exhausted rate, or come at random: the same module.
- How many calls a model takes in a period: [services.generation.limits.model_rates].

A refusal is first taken for a sign of the concurrency. Only refusals that this does not account for reach the
test. Those that the test does not account for either are random: they lower nothing, and the calls are sent
again after a wait.

Two bounds always hold. Calls that are neither accepted nor refused yet are at most as
many as a window, which starts at a few calls, grows by one with every accepted call, and shrinks to one
when refusals begin (as the congestion window of TCP). And refusals spend a budget to which only answers
add (as the retry quota of the AWS SDKs, "Retry behavior", AWS SDKs and Tools Reference Guide): without
budget, calls are sent one at a time, and the waits between refusals double.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto

from services.generation.limits.concurrency import ConcurrencyBounds, ConcurrencyLimit, RefusalTest
from services.generation.limits.model_rates import ModelRates
from services.generation.limits.stated_quotas import PERIOD, Quotas


@dataclass(frozen=True, slots=True)
class Rates:
    """Configured rates. None: not configured, so they are learned."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


class Outcome(Enum):
    """How a call ended, as far as the limits are concerned."""

    ANSWERED = auto()
    RATE_LIMITED = auto()
    TIMED_OUT = auto()
    OTHER = auto()


@dataclass(slots=True)
class Admission:
    """A call that was admitted."""

    model: str
    tokens: float
    number: int
    sent: float
    is_probe: bool
    """Whether it was sent while more calls were allowed than are known to be served at once."""
    ahead: int
    """The calls under way when it was sent, without those that were refused later."""
    answered_before: int
    """How many calls had been answered when it was sent."""
    is_settled: bool = False
    """Whether it is known to be accepted or refused."""
    is_refused: bool = False
    is_random: bool = False
    """Whether it was refused, and no limit accounts for that."""


@dataclass(frozen=True, slots=True)
class RateStatus:
    """What limits the calls to a model now."""

    model: str
    waiting: int
    """Calls that wait to be sent."""
    in_flight: int
    """Calls of all models of the provider in progress."""
    concurrency_limit: int
    """How many of them may be in progress at once."""
    requests_made: int
    """Requests sent in the last minute."""
    requests_per_minute: float | None
    """The known limit of requests. None: none is known."""
    next_seconds: float
    """Seconds until the next call may be sent, as far as rates are concerned. 0: now."""

    def sentence(self, provider: str) -> str:
        """The same in words."""
        known = self.requests_per_minute is not None
        most = f", {self.requests_made} of {self.requests_per_minute:.0f} a minute" if known else ""
        return f"rate-limited by {provider}{most}, next in {self.next_seconds:.0f} s"


@dataclass(eq=False, slots=True)
class _Waiting:
    turn: asyncio.Future[Admission]
    tokens: float


_LONG_WAIT = 1 / 30
"""A provider that asks to wait for this share of the period or longer limits the rate."""
_FIRST_WAIT = 1 / 600
"""The first wait after a refusal that makes an exhausted rate likely, as a share of the period."""
_DOUBTFUL = 0.3
"""A share of refusals at random above this may be that of a bucket that is asked for more than its refill."""
_TOKENS_WEIGHT = 0.1
"""The weight of a call in the mean number of tokens."""
_SHORTEST_GRACE = 0.1
"""A call is not taken for accepted sooner than after these seconds while no refusal was seen."""
_FIRST_WINDOW = 8
"""The calls that are sent before any is known to be accepted."""
_BUDGET = 64
"""The refusals without an answer that are sent again without delay."""


@dataclass(slots=True)
class _Lane:
    """The calls of one model."""

    rates: ModelRates
    waiting: deque[_Waiting] = field(default_factory=deque)
    usual_tokens: float = 0.0
    """The mean number of tokens of the latest calls."""
    test: RefusalTest = field(default_factory=RefusalTest)
    window: int = _FIRST_WINDOW
    """The most calls that are neither accepted nor refused yet."""
    unsettled: deque[Admission] = field(default_factory=deque)
    """Those calls, in their order, and some that are settled."""
    unsettled_count: int = 0
    budget: float = _BUDGET
    refused_in_row: int = 0
    """Refusals at random, one after the other, since a call sent later was accepted."""
    refused_at: float = -math.inf
    """When the last of them came."""
    blocked_until: float = -math.inf
    doubt_from: int = 0
    """From the call of this number on, a high share of refusals at random is put to the test again."""


class CallLimiter:
    """Admits the calls to one provider, first come, first served for each model.

    Args:
        bounds: The range of the limit of concurrency.
        rates: The configured rates of a model. None: none are configured.
        period: The period of the rates, in seconds.
        clock: The time, in seconds.
        attempt_timeout: The time limit of an attempt, in seconds. Answers that take a third of it or longer
            do not raise the limit of concurrency: the provider may let calls wait.
        is_shared: Whether the calls of other processes count at the provider as well.
    """

    def __init__(
        self,
        bounds: ConcurrencyBounds | None = None,
        rates: Callable[[str], Rates] | None = None,
        *,
        period: float = PERIOD,
        clock: Callable[[], float] = time.monotonic,
        attempt_timeout: float = math.inf,
        is_shared: bool = True,
    ) -> None:
        self._longest_answer = attempt_timeout / 3
        self._rates = rates or (lambda _: Rates())
        self._period = period
        self._clock = clock
        self._concurrency = ConcurrencyLimit(bounds or ConcurrencyBounds())
        self._slowest_refusal = 0.0
        """How long refusals take to arrive, in seconds. 0: there was none."""
        self._under_way: dict[int, Admission] = {}
        self._number = 0
        self._answered = 0
        self._lanes: dict[str, _Lane] = {}
        self._maximum = (bounds or ConcurrencyBounds()).maximum
        self._replicas = 1
        self._is_shared = is_shared
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """How many calls may be in progress at once now."""
        return max(1, min(self._concurrency.value, self._maximum // self._replicas))

    @property
    def in_flight(self) -> int:
        """How many calls are in progress."""
        return len(self._under_way)

    @property
    def waiting(self) -> int:
        """How many calls wait to be admitted."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    def divide(self, replicas: int) -> None:
        """Keeps to an equal part of the configured limits, of at least one call.

        What is learned or stated needs no division: it is what this process gets beside the others.

        Args:
            replicas: The processes that share the limits, this one included.
        """
        if self._is_shared and replicas != self._replicas:
            self._replicas = replicas
            for lane in self._lanes.values():
                lane.rates.divide(replicas)
            self._dispatch()

    def delay(self, model: str, tokens: float = 0.0) -> float:
        """Seconds until the rates of a model admit a call; 0: now."""
        lane = self._lane(model)
        return lane.rates.delay(self._clock(), max(tokens, lane.usual_tokens))

    def refused_in_row(self, model: str) -> int:
        """Refusals of the model that no limit accounts for, since a call was accepted."""
        return self._lane(model).refused_in_row

    def status(self) -> list[RateStatus]:
        """What limits the calls to each model, sorted by name."""
        return [self.status_of(model) for model in sorted(self._lanes)]

    def status_of(self, model: str) -> RateStatus:
        """What limits the calls to a model."""
        lane, now = self._lane(model), self._clock()
        made, most = lane.rates.requests(now) or (lane.rates.made(now), None)
        tokens = max(lane.usual_tokens, lane.waiting[0].tokens if lane.waiting else 0.0)
        return RateStatus(
            model,
            waiting=len(lane.waiting),
            in_flight=self.in_flight,
            concurrency_limit=self.limit,
            requests_made=made,
            requests_per_minute=most,
            next_seconds=lane.rates.delay(now, tokens),
        )

    def try_acquire(self, model: str = "", tokens: float = 0.0) -> Admission | None:
        """Admits the call if it may go at once. If so, one [release] must follow."""
        lane, now = self._lane(model), self._clock()
        if lane.waiting or self.in_flight >= self.limit or self._delay(lane, now, tokens) > 0:
            return None
        return self._admit(model, lane, now, tokens)

    async def acquire(self, model: str = "", tokens: float = 0.0, *, first: bool = False) -> Admission:
        """Waits until the call may go. Every return must be followed by one [release].

        Args:
            model: The model.
            tokens: The least number of tokens that the call takes. The latest calls may show that it is more.
            first: Whether it goes before all calls that wait: it was sent before and refused.
        """
        admission = None if first else self.try_acquire(model, tokens)
        if admission is not None:
            return admission
        lane = self._lane(model)
        waiting = _Waiting(asyncio.get_running_loop().create_future(), tokens)
        (lane.waiting.appendleft if first else lane.waiting.append)(waiting)
        self._dispatch()
        try:
            return await waiting.turn
        except asyncio.CancelledError:
            if not waiting.turn.cancelled():  # admitted and cancelled in the same tick
                self.release(waiting.turn.result(), Outcome.OTHER)
            else:
                # A dispatch in the same tick may have dropped it from the queue already.
                with suppress(ValueError):
                    lane.waiting.remove(waiting)
                self._dispatch()
            raise

    def release(
        self,
        admission: Admission,
        outcome: Outcome,
        *,
        retry_after: float | None = None,
        tokens: float | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """Ends a call and learns from how it ended.

        Args:
            admission: The call.
            outcome: How it ended.
            retry_after: How long the provider asks to wait, if it says.
            tokens: How many tokens the call took, where that is known.
            quotas: The limits that the response states.
        """
        del self._under_way[admission.number]
        now, lane = self._clock(), self._lane(admission.model)
        if outcome is Outcome.RATE_LIMITED:
            self._refused(admission, lane, now, retry_after, quotas)
        else:
            if not admission.is_settled:
                self._accepted(admission, lane)
            excess = 0.0 if tokens is None else tokens - admission.tokens
            if tokens is not None:
                weight = _TOKENS_WEIGHT if lane.usual_tokens else 1.0
                lane.usual_tokens += weight * (tokens - lane.usual_tokens)
            lane.rates.answered(now, admission.sent, admission.number, excess, quotas)
            if outcome is Outcome.ANSWERED:
                self._answered += 1
                lane.budget = min(_BUDGET, lane.budget + 1)
                is_slow = now - admission.sent >= self._longest_answer
                self._concurrency.answered(waiting=self.waiting > 0 and not is_slow)
            elif outcome is Outcome.TIMED_OUT:
                answered = self._answered - admission.answered_before
                self._concurrency.timed_out(admission.number, answered, self._number)
        self._dispatch()

    def _lane(self, model: str) -> _Lane:
        lane = self._lanes.get(model)
        if lane is None:
            rates = self._rates(model)
            lane = self._lanes[model] = _Lane(
                ModelRates(rates.requests_per_minute, rates.tokens_per_minute, self._period)
            )
            lane.rates.divide(self._replicas)
        return lane

    @property
    def _grace(self) -> float:
        """A call that is not refused within this time counts as accepted, in seconds."""
        if not self._slowest_refusal:
            return max(_SHORTEST_GRACE, self._period / 24)
        return max(2 * self._slowest_refusal, self._period / 600)

    def _delay(self, lane: _Lane, now: float, tokens: float) -> float:
        """Seconds until a call of the model may be sent, as far as the concurrency allows it; 0: now."""
        wait = max(lane.blocked_until - now, lane.rates.delay(now, max(tokens, lane.usual_tokens)))
        if wait <= 0 and lane.unsettled_count >= lane.window:
            self._settle(lane, now)
            if lane.unsettled_count >= lane.window:
                return max(0.001, lane.unsettled[0].sent + self._grace - now)
        return max(0.0, wait)

    def _admit(self, model: str, lane: _Lane, now: float, tokens: float) -> Admission:
        self._number += 1
        tokens = max(tokens, lane.usual_tokens)
        admission = Admission(
            model,
            tokens,
            self._number,
            now,
            is_probe=self._concurrency.is_probe(self.in_flight),
            ahead=self.in_flight,
            answered_before=self._answered,
        )
        self._under_way[self._number] = admission
        lane.rates.sent(now, self._number, tokens)
        lane.unsettled.append(admission)
        lane.unsettled_count += 1
        return admission

    def _dispatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait = math.inf
        for model, lane in self._lanes.items():
            self._settle(lane, self._clock())
            while lane.waiting:
                now, head = self._clock(), lane.waiting[0]
                if self.in_flight >= self.limit:
                    if lane.unsettled_count:  # accepted calls may raise the limit
                        wait = min(wait, lane.unsettled[0].sent + self._grace - now)
                    break
                delay = self._delay(lane, now, head.tokens)
                if delay > 0:
                    wait = min(wait, delay)
                    if lane.unsettled_count:  # and they may end the wait
                        wait = min(wait, lane.unsettled[0].sent + self._grace - now)
                    break
                lane.waiting.popleft()
                if not head.turn.done():
                    head.turn.set_result(self._admit(model, lane, now, head.tokens))
        if math.isfinite(wait):
            self._timer = asyncio.get_running_loop().call_later(max(wait, 0.001), self._dispatch)

    def _settle(self, lane: _Lane, now: float) -> None:
        """Tests calls in the order in which they were sent, up to the first that may still be refused."""
        while lane.unsettled:
            first = lane.unsettled[0]
            if not first.is_settled:
                if first.sent + self._grace > now:
                    break
                self._accepted(first, lane)
                if lane.waiting:
                    self._concurrency.survived()
            lane.unsettled.popleft()
            if first.is_random:
                self._test_refused(first, lane, now)
            elif not first.is_refused:
                if lane.rates.is_learned:
                    lane.test.note(refused=False)
                else:
                    lane.test.accepted()
                if first.sent >= lane.refused_at:
                    lane.refused_in_row = 0

    def _test_refused(self, admission: Admission, lane: _Lane, now: float) -> None:
        if lane.test.refused():
            self._rate_exhausted(admission, lane, now, None)
            return
        if lane.test.share > _DOUBTFUL and admission.number >= lane.doubt_from:
            lane.doubt_from = 2 * admission.number
            lane.rates.try_pacing(now)
        if admission.sent >= lane.refused_at:  # calls refused together count once
            lane.refused_in_row += 1
            lane.refused_at = now
        if lane.test.is_suspicious or lane.budget <= 0:
            lane.window = 1
            wait = self._period * _FIRST_WAIT * 2.0 ** min(lane.refused_in_row - 1, 32)
            lane.blocked_until = now + min(wait, self._period / 2)

    def _accepted(self, admission: Admission, lane: _Lane) -> None:
        admission.is_settled = True
        lane.unsettled_count -= 1
        if lane.budget > 0:
            lane.window += 1
        limited = lane.rates.is_learned
        lane.rates.accepted(admission.sent, admission.number)
        if limited and not lane.rates.is_learned:
            lane.test.take_back()
        self._concurrency.accepted(admission.ahead, admission.number)

    def _refused(
        self,
        admission: Admission,
        lane: _Lane,
        now: float,
        retry_after: float | None,
        quotas: Quotas | None,
    ) -> None:
        self._slowest_refusal = max(0.9 * self._slowest_refusal, now - admission.sent)
        if not admission.is_settled:
            admission.is_settled = admission.is_refused = True
            lane.unsettled_count -= 1
        for other in self._under_way.values():
            if other.number > admission.number:
                other.ahead -= 1
        lane.rates.discount(admission.sent)
        tokens = max(admission.tokens, lane.usual_tokens)
        if lane.rates.explains(now, admission.sent, admission.number, tokens, quotas):
            return
        lane.budget -= 1
        if retry_after is not None and retry_after >= self._period * _LONG_WAIT:
            self._rate_exhausted(admission, lane, now, retry_after)
        elif lane.rates.expects_refusal(admission.number):
            lane.test.note(refused=True)
            lane.rates.refused(now, admission.sent, admission.number, retry_after, lane.test.share)
        elif self._concurrency.refused(
            admission.number,
            self.in_flight,
            probe=admission.is_probe,
            last_sent=self._number,
            random_share=lane.test.share,
        ):
            if not admission.is_probe:
                lane.window = 1
        else:
            admission.is_random = True

    def _rate_exhausted(
        self, admission: Admission, lane: _Lane, now: float, retry_after: float | None
    ) -> None:
        lane.window, lane.refused_in_row = 1, 0
        self._concurrency.refute()
        lane.rates.refused(now, admission.sent, admission.number, retry_after, lane.test.share)
