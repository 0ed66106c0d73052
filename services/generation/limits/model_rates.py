"""How many calls and tokens a minute a model takes: as configured, as its provider states, or as learned.

All times are seconds on one clock; calls count from when they are sent.

The pace that no configuration or provider states is learned from refusals. A provider limits the requests of
a period in one of two ways. A token bucket refills steadily. A window admits a number of calls in each period
and none after that. Refusals tell neither the kind nor the number. Both are learned from when calls are
refused and accepted again:

- When the rate is exhausted, single calls are sent, with waits that double, until one is accepted.
- If that takes a quarter of the period or longer, the limit is taken for a window. As many calls as were
  accepted before are then sent in any one period. Single calls beyond them test the number: at once when
  it is first reached, then after ever more periods. While tests are accepted the number rises, each time
  by twice as much.
- Otherwise the limit is taken for a bucket, and calls are spaced evenly, faster with each call until the
  first refusal. Between two refusals the bucket was empty twice, so the calls accepted in between are its
  refill (exact to one call). The pace then rises slowly until the next refusal.
- After some refusals at an even pace, a few calls are sent together. If most are accepted, the refusals
  came at random, and nothing limits the rate.
"""

from __future__ import annotations

import math
from collections import deque
from enum import Enum, auto
from typing import NamedTuple

from services.generation.limits.stated_quotas import MARGIN, PERIOD, Quotas, SlidingWindow, StatedQuota

_REFUSED_ABOVE = 0.95
"""The share of calls above a limit that are refused."""
_EVIDENCE = math.log(7.0)
"""A window is full if the refused tests are seven times as likely with it as at random."""
_QUICK_GROWTH = 1.3
"""The growth of the pace with each call, until the first refusal."""
_QUICK_CALLS = 40
"""After this number of calls without a refusal, each sooner than the one before, there is no limit."""
_SETTLED = 8
"""From this number of calls between two refusals their rate is the estimate."""
_TRIAL_CALLS = 4
"""Calls sent together to tell a bucket from refusals at random. An empty bucket takes one of them at most."""
_TRIAL_AFTER, _TRIAL_GROWTH = 10, 3
"""After this number of calls at an even pace, a refusal starts the first trial; after three times as many,
the next."""
_RECENT = 40
"""The accepted calls by which the rate is measured before the first refusal at an even pace."""
_FALL = 4
"""Between two trials the pace falls at most to this part: refusals at random would bring it to a halt."""
_DEAD_RUN = 5
"""After this number of refusals without an accepted call, the pace is learned anew."""


class _State(Enum):
    OPEN = auto()
    CLOSED = auto()
    TRIAL = auto()
    PACED = auto()
    WINDOW = auto()


class LearnedPace:
    """The pace of one model.

    Args:
        period: The period of the limits, in seconds.
    """

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._state = _State.OPEN
        self._log: deque[float] = deque()
        """When the calls of the last period were sent, refused ones left out."""
        self._moment = period / 600
        """How long to wait for the outcome of a call before asking again."""
        self._blocked_until = -math.inf
        self._taken = 0
        """Calls accepted in the period before the rate was exhausted."""
        self._emptied = -math.inf
        """When the last call was sent that showed an exhausted rate."""
        self._closed_at = -math.inf
        self._opened_at = -math.inf
        """When a call was accepted again."""
        self._backoff = 0.0
        self._probe: int | None = None
        """The number of the call that is to show whether the limit still holds."""
        self._evidence = 0.0
        """The logarithm of how much likelier the outcomes of tests are with the limit than at random."""
        # Buckets:
        self._rate = math.inf
        self._next = -math.inf
        self._since: deque[float] = deque(maxlen=10_000)
        """When calls were sent since the bucket was empty, refused ones left out."""
        self._exact = False
        self._measured = 0
        """How many calls the estimate of the rate rests on."""
        self._paced = [0, 0]
        """Refused and accepted calls since the last trial."""
        self._trial_after = _TRIAL_AFTER
        self._trial_after_number = self._last_number = 0
        """The number of the last call sent before the trial, and of the last of all."""
        self._trial_sent = self._trial_ended = 0
        self._refused_in_row = 0
        self._share = 0.0
        """The share of calls that the trial takes for refused at random."""
        self._floor = 0.0
        """The pace does not fall below this until a trial confirms the limit."""
        # Windows:
        self._limit = 0
        self._test_from = -math.inf
        self._step = 1
        self._patience = 2

    @property
    def is_learned(self) -> bool:
        """Whether the rate is limited, or was when a call was last accepted."""
        return self._state is not _State.OPEN

    def expects_refusal(self, number: int) -> bool:
        """Whether the learned limit accounts for the refusal of a call."""
        if self._state is _State.WINDOW:
            return number == self._probe
        return self._state is not _State.OPEN

    def per_minute(self) -> float | None:
        """The requests a minute that the model takes. None: no limit is known."""
        if self._state is _State.PACED:
            return self._rate * 60
        if self._state is _State.WINDOW:
            return self._limit * 60 / self._period
        return max(1, self._taken) * 60 / self._period if self._state is _State.CLOSED else None

    def delay(self, now: float) -> float:
        """Seconds until a call may be sent; 0: now."""
        if now < self._blocked_until:
            return self._blocked_until - now
        if self._state is _State.CLOSED and self._probe is not None:
            return self._moment
        if self._state is _State.TRIAL and self._trial_sent >= _TRIAL_CALLS:
            return self._moment
        if self._state is _State.PACED:
            return max(0.0, self._next - now)
        if self._state is _State.WINDOW:
            self._forget(now)
            if len(self._log) >= self._limit:
                first = self._log[-self._limit]
                if self._probe is None and first >= self._test_from:
                    # Alone, so that the test and the calls before it arrive in their order.
                    return max(0.0, self._log[-1] + self._moment - now)
                return max(0.0, first + self._period * MARGIN - now)
        return 0.0

    def sent(self, now: float, number: int) -> None:
        """Counts a call that is sent; numbers rise."""
        self._forget(now)
        if self._state is _State.CLOSED:
            self._probe = number
        elif self._state is _State.TRIAL:
            self._trial_sent += 1
        elif self._state is _State.WINDOW and len(self._log) >= self._limit:
            if self._probe is None and self._log[-self._limit] >= self._test_from:
                self._probe = number
        elif self._state is _State.PACED:
            self._pace(now)
        self._log.append(now)
        self._last_number = number

    def accepted(self, sent: float, number: int) -> None:
        """Takes that a call was not refused."""
        if self._state is _State.CLOSED and number == self._probe:
            self._reopen(sent)
        elif self._state is _State.TRIAL and number > self._trial_after_number:
            self._end_trial_call(sent, math.log((1 - _REFUSED_ABOVE) / (1 - self._share)))
        elif self._state is _State.PACED:
            self._paced[1] += 1
            self._refused_in_row = 0
        elif self._state is _State.WINDOW and number == self._probe:
            self._probe = None
            self._limit += self._step
            self._step *= 2
            self._evidence, self._patience = 0.0, 2

    def discount(self, sent: float) -> None:
        """Takes a call that was refused out of the counts; every refused call must be."""
        for log in (self._log, self._since):
            if sent in log:
                log.remove(sent)
        if self._state is _State.CLOSED and self._opened_at <= sent <= self._closed_at:
            self._taken = max(0, self._taken - 1)

    def refused(
        self, now: float, sent: float, number: int, retry_after: float | None, random_share: float
    ) -> None:
        """Learns from a refusal that shows an exhausted rate, after [discount].

        Args:
            now: When the refusal came.
            sent: When the call was sent.
            number: The number of the call.
            retry_after: How long the provider asks to wait, if it says.
            random_share: The share of calls that are refused at random.
        """
        if self._state is _State.OPEN:
            self._close(now, sent)
        elif self._state is _State.CLOSED:
            if number == self._probe:
                self._probe = None
                self._wait_longer(now)
        elif self._state is _State.TRIAL:
            if number > self._trial_after_number:
                self._end_trial_call(sent, math.log(_REFUSED_ABOVE / self._share))
        elif sent > self._emptied:
            if self._state is _State.PACED:
                self._paced[0] += 1
                self._refused_in_row += 1
                self._measure(now, sent)
                if self._refused_in_row >= _DEAD_RUN:
                    self._close(now, sent)
                elif sum(self._paced) >= self._trial_after:
                    self._start_trial(sent, random_share)
            elif number == self._probe:
                self._probe = None
                self._evidence += math.log(_REFUSED_ABOVE / random_share)
                if self._evidence >= _EVIDENCE:
                    self._evidence, self._step = 0.0, 1
                    self._test_from = sent + self._patience * self._period
                    self._patience *= 2
            else:
                self._close(now, sent)
        if retry_after is not None:
            self._block(now, retry_after)

    def try_pacing(self, now: float) -> None:
        """Spaces calls by the rate at which they were accepted lately, up to the next trial.

        A bucket that is asked for more than its refill refuses a steady share of the calls, as if at random.
        """
        recent = list(self._log)[-_RECENT:]
        if self._state is _State.OPEN and len(recent) > 1 and now > recent[0]:
            self._rate = len(recent) / (now - recent[0])
            self._start_pacing(now, now)
            self._exact = True

    def _close(self, now: float, sent: float) -> None:
        self._forget(now)
        self._state, self._probe = _State.CLOSED, None
        self._taken = sum(at >= self._opened_at for at in self._log)
        self._emptied, self._closed_at = sent, now
        mean = (now - self._log[0]) / self._taken if self._taken else math.inf
        self._backoff = min(self._period / 60, max(self._period / 1200, mean))
        self._block(now, self._backoff)

    def _wait_longer(self, now: float) -> None:
        self._backoff = min(2 * self._backoff, self._period)
        wait = self._backoff
        if self._log:  # if it is a window, it opens when its first call leaves it
            opens = self._log[0] + self._period * MARGIN - now
            wait = min(wait, opens) if opens > 0 else wait
        self._block(now, wait)

    def _reopen(self, probe: float) -> None:
        self._probe, self._opened_at = None, probe
        if probe - self._emptied >= self._period / 4:
            self._state = _State.WINDOW
            self._limit = max(1, self._taken)
            self._test_from, self._patience, self._step = probe, 2, 1
            if len(self._log) > self._limit + 1:
                self._log = deque([probe])
        else:
            self._rate = max(1 / (probe - self._emptied), 0.8 * self._taken / self._period)
            self._start_pacing(probe, probe)

    def _start_trial(self, sent: float, random_share: float) -> None:
        self._state, self._emptied = _State.TRIAL, sent
        self._share = min(0.75, max(random_share, self._paced[0] / sum(self._paced)))
        self._evidence, self._trial_sent, self._trial_ended = 0.0, 0, 0
        self._trial_after_number = self._last_number

    def _end_trial_call(self, sent: float, evidence: float) -> None:
        self._evidence += evidence
        self._trial_ended += 1
        if self._trial_ended < _TRIAL_CALLS:
            return
        if self._evidence < 0:
            self._state = _State.OPEN
        else:
            self._trial_after *= _TRIAL_GROWTH
            self._floor /= _FALL
            self._resume_pacing(sent, sent)

    def _start_pacing(self, now: float, sent: float) -> None:
        self._exact, self._trial_after, self._floor = False, _TRIAL_AFTER, self._rate / _FALL
        self._resume_pacing(now, sent)

    def _resume_pacing(self, now: float, sent: float) -> None:
        self._state, self._emptied, self._next = _State.PACED, sent, now + 1 / self._rate
        self._paced, self._refused_in_row = [0, 0], 0
        self._since.clear()

    def _pace(self, now: float) -> None:
        self._since.append(now)
        if now > self._next + 1 / self._rate:  # it is not the pace that limits the calls
            self._next = now + 1 / self._rate
            return
        count = len(self._since)
        if not self._exact:
            self._rate *= _QUICK_GROWTH
            if count > _QUICK_CALLS and now - self._emptied > self._period / 6:
                self._state = _State.OPEN
        elif count % 5 == 0 and count >= _SETTLED:
            # The less the estimate rests on, and the longer nothing is refused, the sooner it is raised.
            self._rate *= 1 + min(0.15, max(1.0, count / 20) / (self._measured + 5))
        self._next = max(self._next, now) + 1 / self._rate

    def _measure(self, now: float, sent: float) -> None:
        elapsed = sent - self._emptied
        count = sum(at <= sent for at in self._since)
        if count >= _SETTLED and elapsed > 0:
            self._rate = (count - 1) / elapsed
            self._floor = max(self._floor, self._rate / _FALL)
        else:
            measured = count / elapsed if elapsed > 0 else 0.0
            self._rate = max(self._floor, min(0.95 * self._rate, max(measured, 0.7 * self._rate)))
        self._exact, self._measured, self._emptied = True, count, sent
        while self._since and self._since[0] <= sent:
            self._since.popleft()
        self._next = now + 1 / self._rate

    def _block(self, now: float, seconds: float) -> None:
        self._blocked_until = max(self._blocked_until, now + seconds)

    def _forget(self, now: float) -> None:
        while self._log and self._log[0] <= now - self._period * MARGIN:
            self._log.popleft()


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
        self._configured = requests_per_minute or math.inf, tokens_per_minute or math.inf
        self._requests, self._tokens = (SlidingWindow(limit, period) for limit in self._configured)
        self._stated_requests, self._stated_tokens = StatedQuota(period), StatedQuota(period)
        self._pace = LearnedPace(period)
        self._sent: deque[_Sent] = deque(maxlen=4096)

    def divide(self, replicas: int) -> None:
        """Keeps to an equal part of the configured limits."""
        self._requests.limit, self._tokens.limit = (limit / replicas for limit in self._configured)

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
