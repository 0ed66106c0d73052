"""Which calls to a provider are sent, and when.

Calls of a model go first come, first served, as soon as three limits allow it: its window
([services.generation.limits.window]), its configured rates and those that the provider states
([services.generation.limits.rates]). A refusal that states an exhausted quota changes that quota. Any other
changes the window.
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

from services.generation.limits.rates import ModelRates, Rates
from services.generation.limits.stated_quotas import PERIOD, Quotas
from services.generation.limits.window import Window, WindowBounds


class Outcome(Enum):
    """How a call ended, as far as the limits are concerned."""

    ANSWERED = auto()
    RATE_LIMITED = auto()
    TIMED_OUT = auto()
    OTHER = auto()


@dataclass(eq=False, slots=True)
class Admission:
    """A call that was admitted."""

    model: str
    tokens: float
    number: int
    sent: float
    answered_before: int
    """How many calls of the model had been answered when it was sent."""
    is_settled: bool = False
    """Whether it is known to be accepted or refused."""


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


_TOKENS_WEIGHT = 0.1
"""The weight of a call in the mean number of tokens."""
_SLOW = 1 / 3
"""Answers that take this share of the time limit of an attempt or longer do not raise the window: more calls
would wait beyond it at the provider."""
_SHORTEST_WAIT = 0.001
"""Seconds between two looks at what waits, at least."""


@dataclass(slots=True)
class _Lane:
    """The calls of one model."""

    rates: ModelRates
    window: Window
    waiting: deque[_Waiting] = field(default_factory=deque)
    unsettled: deque[Admission] = field(default_factory=deque)
    """Calls that may still be refused, in their order, and some that are settled."""
    usual_tokens: float = 0.0
    """The mean number of tokens of the latest calls."""
    answered: int = 0

    def delay(self, now: float, tokens: float) -> float:
        """Seconds until the rates admit a call; 0: now."""
        return max(self.window.delay(now), self.rates.delay(now, max(tokens, self.usual_tokens)))

    def settle(self, admission: Admission, now: float, *, grows: bool = True) -> None:
        """Takes that a call is accepted."""
        if not admission.is_settled:
            admission.is_settled = True
            waiting = grows and bool(self.waiting)
            self.window.acknowledged(now, admission.sent, admission.number, waiting=waiting)


class CallLimiter:
    """Admits the calls to one provider, first come, first served for each model.

    Args:
        bounds: The range of the window of each model. All models together have at most the maximum.
        rates: The configured rates of a model. None: none are configured.
        period: The period of the rates, in seconds.
        clock: The time, in seconds.
        attempt_timeout: The time limit of an attempt, in seconds.
    """

    def __init__(
        self,
        bounds: WindowBounds | None = None,
        rates: Callable[[str], Rates] | None = None,
        *,
        period: float = PERIOD,
        clock: Callable[[], float] = time.monotonic,
        attempt_timeout: float = math.inf,
    ) -> None:
        self._bounds = bounds or WindowBounds()
        self._rates = rates or (lambda _: Rates())
        self._period = period
        self._clock = clock
        self._slow = _SLOW * attempt_timeout
        self._number = 0
        self._lanes: dict[str, _Lane] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """How many calls may be in progress at once now."""
        return min(self._bounds.maximum, sum(lane.window.size for lane in self._lanes.values()))

    @property
    def in_flight(self) -> int:
        """How many calls are in progress."""
        return sum(lane.window.under_way for lane in self._lanes.values())

    @property
    def waiting(self) -> int:
        """How many calls wait to be admitted."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    def delay(self, model: str, tokens: float = 0.0) -> float:
        """Seconds until the rates of a model admit a call; 0: now."""
        return self._lane(model).delay(self._clock(), tokens)

    def status(self) -> list[RateStatus]:
        """What limits the calls to each model, sorted by name."""
        return [self.status_of(model) for model in sorted(self._lanes)]

    def status_of(self, model: str) -> RateStatus:
        """What limits the calls to a model."""
        lane, now = self._lane(model), self._clock()
        made, most = lane.rates.requests(now)
        return RateStatus(
            model,
            waiting=len(lane.waiting),
            in_flight=self.in_flight,
            concurrency_limit=self.limit,
            requests_made=made,
            requests_per_minute=most,
            next_seconds=lane.delay(now, lane.waiting[0].tokens if lane.waiting else 0.0),
        )

    def try_acquire(self, model: str = "", tokens: float = 0.0) -> Admission | None:
        """Admits the call if it may go at once. If so, one [release] must follow."""
        lane, now = self._lane(model), self._clock()
        if lane.waiting or self._is_full(lane) or lane.delay(now, tokens) > 0:
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
        now, lane = self._clock(), self._lane(admission.model)
        lane.window.ended(now)
        if outcome is Outcome.RATE_LIMITED:
            admission.is_settled = True
            expected = max(admission.tokens, lane.usual_tokens)
            if not lane.rates.explains(now, admission.sent, admission.number, expected, quotas):
                lane.window.refused(now, admission.sent, admission.number, self._number, retry_after)
        else:
            is_quick = outcome is Outcome.ANSWERED and now - admission.sent < self._slow
            lane.settle(admission, now, grows=is_quick)
            excess = 0.0 if tokens is None else tokens - admission.tokens
            if tokens is not None:
                weight = _TOKENS_WEIGHT if lane.usual_tokens else 1.0
                lane.usual_tokens += weight * (tokens - lane.usual_tokens)
            lane.rates.answered(now, admission.sent, admission.number, excess, quotas)
            if outcome is Outcome.ANSWERED:
                lane.answered += 1
                lane.window.answered(waiting=bool(lane.waiting) and is_quick)
            elif outcome is Outcome.TIMED_OUT:
                answered = lane.answered - admission.answered_before
                lane.window.timed_out(admission.number, answered, self._number)
        self._dispatch()

    def _lane(self, model: str) -> _Lane:
        lane = self._lanes.get(model)
        if lane is None:
            rates = ModelRates(self._rates(model), self._period)
            lane = self._lanes[model] = _Lane(rates, Window(self._bounds, self._period))
        return lane

    def _is_full(self, lane: _Lane) -> bool:
        return lane.window.under_way >= lane.window.size or self.in_flight >= self._bounds.maximum

    def _admit(self, model: str, lane: _Lane, now: float, tokens: float) -> Admission:
        self._number += 1
        admission = Admission(model, max(tokens, lane.usual_tokens), self._number, now, lane.answered)
        lane.rates.sent(now, self._number, admission.tokens)
        lane.window.sent(now)
        lane.unsettled.append(admission)
        return admission

    def _dispatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock()
        waits = [self._dispatch_lane(model, lane, now) for model, lane in self._lanes.items()]
        wait = min(waits, default=math.inf)
        if math.isfinite(wait):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(wait, _SHORTEST_WAIT), self._dispatch)

    def _dispatch_lane(self, model: str, lane: _Lane, now: float) -> float:
        """Admits the calls of a model that may go. Returns the seconds until others may, if that is known."""
        while lane.unsettled and (lane.unsettled[0].is_settled or self._settles_in(lane, now) <= 0):
            lane.settle(lane.unsettled.popleft(), now)
        while lane.waiting:
            head = lane.waiting[0]
            if self._is_full(lane):
                return self._settles_in(lane, now)  # which may raise the window
            delay = lane.delay(now, head.tokens)
            if delay > 0:
                return delay
            lane.waiting.popleft()
            if not head.turn.done():
                head.turn.set_result(self._admit(model, lane, now, head.tokens))
        return math.inf

    def _settles_in(self, lane: _Lane, now: float) -> float:
        """Seconds until the longest unsettled call counts as accepted."""
        return lane.unsettled[0].sent + lane.window.timer - now if lane.unsettled else math.inf
