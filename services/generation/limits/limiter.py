"""Which calls to a provider are sent, and when: a concurrency limit that adapts, and rates by model.

The concurrency limit starts at a guess and grows with every answer while calls wait (slow start; Jacobson,
"Congestion avoidance and control", SIGCOMM 1988). A refusal lowers it to the number of calls that the
provider has accepted and not answered: calls sent together are refused together, and the rest are those
that it serves at once. If calls within that number are refused too, the provider limits the rate, not the
concurrency, and the rate is learned instead (see [services.generation.limits.learned_pace]). Single calls
above a learned limit probe whether it still holds, first soon, then ever less often. Calls that get no
answer in time halve the limit, unless others are answered meanwhile.

Overloaded providers also refuse single calls at random. Nothing is learned from refusals until several come
without an answer in between.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from services.generation.limits.model_rates import ModelRates
from services.generation.limits.sliding_window import PERIOD
from services.generation.limits.stated_quotas import Quotas


@dataclass(frozen=True, slots=True)
class ConcurrencyBounds:
    """The range of the limit."""

    minimum: int = 1
    start: int = 32
    maximum: int = 256


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
    probes: bool
    """Whether it was sent while one more was allowed than the limit that was learned."""
    answered_before: int
    """How many calls had been answered when it was sent."""


@dataclass(frozen=True, slots=True)
class RateStatus:
    """What limits the calls to a model now."""

    model: str
    waiting: int
    """Calls that wait to be sent."""
    in_flight: int
    """Calls of all models of the provider under way."""
    concurrency_limit: int
    """How many of them may be under way at once."""
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


@dataclass(slots=True)
class _Waiting:
    turn: asyncio.Future[Admission]
    tokens: float


@dataclass(slots=True)
class _Lane:
    """The calls of one model."""

    rates: ModelRates
    waiting: deque[_Waiting] = field(default_factory=deque)
    refused_in_row: int = 0
    """Refusals since the last answer."""


_SUSTAINED = 6
"""This many refusals without an answer in between indicate a limit. Overloaded providers also refuse single
calls at random; these are sent again after a wait, and nothing is learned from them."""
_LONG_WAIT = 1 / 30
"""A provider that asks to wait for this share of the period or longer limits the rate."""
_PROBE_AFTER = 50
"""A learned limit is probed after this many answers, and half as often after every refused probe."""
_RARELY = 12_800


class CallLimiter:
    """Admits the calls to one provider, first come, first served for each model.

    Args:
        bounds: The range of the limit of concurrency.
        rates: The configured rates of a model. None: none are configured.
        period: The period of the rates, in seconds.
        clock: The time, in seconds.
    """

    def __init__(
        self,
        bounds: ConcurrencyBounds | None = None,
        rates: Callable[[str], Rates] | None = None,
        *,
        period: float = PERIOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds = bounds or ConcurrencyBounds()
        self._rates = rates or (lambda _: Rates())
        self._period = period
        self._clock = clock
        self._limit = float(self._bounds.start)
        self._ceiling = math.inf
        """The limit that was learned; infinite where none was."""
        self._before = self._limit
        """The limit before it was last lowered."""
        self._lowered_at = 0
        """The number of the last call sent before the limit was lowered."""
        self._refuted = 0
        """How often a learned limit turned out to be one of the rate."""
        self._probe_after = _PROBE_AFTER
        self._probe_step = 1
        self._since_probe = 0
        self._number = 0
        self._answered = 0
        self._in_flight = 0
        self._lanes: dict[str, _Lane] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """How many calls may be under way at once now."""
        return int(self._limit)

    @property
    def in_flight(self) -> int:
        """How many calls are under way."""
        return self._in_flight

    @property
    def waiting(self) -> int:
        """How many calls wait to be admitted."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    def delay(self, model: str, tokens: float = 0.0) -> float:
        """Seconds until the rates of a model admit a call; 0: now."""
        return self._lane(model).rates.delay(self._clock(), tokens)

    def is_learned(self, model: str) -> bool:
        """Whether a limit of concurrency, or of the model's rate, was learned from refusals."""
        return math.isfinite(self._ceiling) or self._lane(model).rates.learned

    def status(self) -> list[RateStatus]:
        """What limits the calls to each model, sorted by name."""
        return [self.status_of(model) for model in sorted(self._lanes)]

    def status_of(self, model: str) -> RateStatus:
        """What limits the calls to a model."""
        lane, now = self._lane(model), self._clock()
        made, most = lane.rates.requests(now) or (lane.rates.made(now), None)
        tokens = lane.waiting[0].tokens if lane.waiting else 0.0
        return RateStatus(
            model,
            waiting=len(lane.waiting),
            in_flight=self._in_flight,
            concurrency_limit=self.limit,
            requests_made=made,
            requests_per_minute=most,
            next_seconds=lane.rates.delay(now, tokens),
        )

    def try_acquire(self, model: str = "", tokens: float = 0.0) -> Admission | None:
        """Admits the call if it may go at once. If so, one [release] must follow."""
        lane = self._lane(model)
        if lane.waiting or self._in_flight >= self.limit:
            return None
        now = self._clock()
        return self._admit(model, lane, now, tokens) if lane.rates.delay(now, tokens) <= 0 else None

    async def acquire(self, model: str = "", tokens: float = 0.0, *, first: bool = False) -> Admission:
        """Waits until the call may go. Every return must be followed by one [release].

        Args:
            model: The model.
            tokens: How many tokens the call is expected to take.
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
            if waiting.turn.done() and not waiting.turn.cancelled():
                # Admitted and cancelled in the same moment.
                self.release(waiting.turn.result(), Outcome.OTHER)
            else:
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
        self._in_flight -= 1
        now, lane = self._clock(), self._lane(admission.model)
        rates = lane.rates
        if outcome is Outcome.RATE_LIMITED:
            self._refused(admission, now, retry_after, quotas)
        elif outcome is Outcome.TIMED_OUT:
            self._timed_out(admission)
        else:
            excess = 0.0 if tokens is None else tokens - admission.tokens
            rates.answered(now, admission.sent, admission.number, excess, quotas)
            if outcome is Outcome.ANSWERED:
                lane.refused_in_row = 0
                self._grow()
        self._dispatch()

    def _lane(self, model: str) -> _Lane:
        lane = self._lanes.get(model)
        if lane is None:
            rates = self._rates(model)
            lane = self._lanes[model] = _Lane(
                ModelRates(rates.requests_per_minute, rates.tokens_per_minute, self._period)
            )
        return lane

    def _admit(self, model: str, lane: _Lane, now: float, tokens: float) -> Admission:
        self._number += 1
        self._in_flight += 1
        lane.rates.sent(now, self._number, tokens)
        probes = self._limit > self._ceiling
        return Admission(model, tokens, self._number, now, probes, self._answered)

    def _dispatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait = math.inf
        for model, lane in self._lanes.items():
            while lane.waiting and self._in_flight < self.limit:
                now, head = self._clock(), lane.waiting[0]
                delay = lane.rates.delay(now, head.tokens)
                if delay > 0:
                    wait = min(wait, delay)
                    break
                lane.waiting.popleft()
                if not head.turn.done():
                    head.turn.set_result(self._admit(model, lane, now, head.tokens))
        if math.isfinite(wait):
            self._timer = asyncio.get_running_loop().call_later(max(wait, 0.001), self._dispatch)

    def _refused(
        self, admission: Admission, now: float, retry_after: float | None, quotas: Quotas | None
    ) -> None:
        lane = self._lane(admission.model)
        lane.refused_in_row += 1
        rates = lane.rates
        rates.discount(admission.sent)
        if rates.explains(now, admission.sent, admission.number, admission.tokens, quotas):
            return
        long = retry_after is not None and retry_after >= self._period * _LONG_WAIT
        if not long and not admission.probes and not rates.learned and lane.refused_in_row < _SUSTAINED:
            return
        together = admission.number <= self._lowered_at
        if together and not long:
            self._lower(self._in_flight)
        elif admission.probes and not long:
            self._limit = self._ceiling
            self._probe_after = min(max(2 * self._probe_after, _PROBE_AFTER), _RARELY)
            self._probe_step = 1
            self._since_probe = 0
        elif not long and self._in_flight and math.isinf(self._ceiling) and not rates.learned:
            self._before, self._lowered_at = self._limit, self._number
            self._lower(self._in_flight)
        else:
            self._restore()
            rates.refused(now, admission.sent, retry_after)

    def _lower(self, limit: float) -> None:
        self._limit = self._ceiling = max(float(self._bounds.minimum), min(self._limit, math.floor(limit)))
        self._since_probe = 0

    def _restore(self) -> None:
        """Undoes the last decrease: what the provider limits is the rate."""
        if math.isinf(self._ceiling) or self._refuted >= 3:
            return
        self._refuted += 1
        self._limit, self._ceiling, self._lowered_at = self._before, math.inf, 0

    def _timed_out(self, admission: Admission) -> None:
        # While others are answered, one call hangs; the limit is not at fault.
        if 4 * (self._answered - admission.answered_before) >= self._limit:
            return
        if admission.number > self._lowered_at:
            answered = self._answered - admission.answered_before
            self._before, self._lowered_at = self._limit, self._number
            self._lower(max(1, min(self._limit, answered or self._limit) / 2))

    def _grow(self) -> None:
        self._answered += 1
        if not self.waiting:
            return
        if math.isinf(self._ceiling):
            self._limit = min(self._limit + 1, float(self._bounds.maximum))
            return
        self._since_probe += 1
        if self._limit > self._ceiling:
            if self._since_probe > 2 * self._limit:  # the probes were taken
                self._ceiling = self._limit
                self._probe_step *= 2
                self._probe_after = _PROBE_AFTER // 4
        elif self._since_probe >= max(self._probe_after, 2 * self._limit):
            self._since_probe = 0
            self._limit = min(self._limit + self._probe_step, float(self._bounds.maximum))
