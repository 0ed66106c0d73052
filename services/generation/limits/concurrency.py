"""How many calls may be under way at once at a provider, and whether refusals show an exhausted rate.

The limit grows by one with every answer while calls wait: it doubles in each round (slow start; Jacobson,
"Congestion avoidance and control", SIGCOMM 1988). Calls sent together are refused together, and those that
are left are what the provider serves at once: the limit falls to their number. From then on calls above it
are probes, after one round and, with every probe that is refused, after twice as many rounds. Probes that are
accepted raise the limit, each time by twice as much.

Tells a limit of the rate from refusals at random. Overloaded providers refuse a share of all calls at any
load. A provider whose rate is exhausted refuses almost all. The test is a CUSUM (Page, "Continuous Inspection
Schemes", Biometrika 41, 1954): the sum of log-likelihood ratios of the two, kept at 0 or above. Only calls
that no known limit accounts for are counted.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConcurrencyBounds:
    """The range of the limit."""

    minimum: int = 1
    start: int = 32
    maximum: int = 256


_LONGEST_INTERVAL = 64
"""The most rounds between two probes. At one call at once they take 1.6 % of the calls."""
_QUEUE_ROUNDS = 8
"""The rounds after which the limit of a provider rises by one that lets calls wait for too long."""
_SAMPLES = 32
"""The calls by which a fallen limit is noticed."""
_REFUSED_ABOVE = 0.95
"""The share of calls above the limit that are refused. Not 1: a call may end while another is sent."""
_PROBE_EVIDENCE = math.log(7.0)
"""A probe is taken for refused if that is seven times as likely as a refusal at random."""
_FALL_EVIDENCE = math.log(1000.0)
"""The same for a fallen limit. It is looked for at every refusal, so it needs more evidence."""


class ConcurrencyLimit:
    """The limit, learned from which calls are refused.

    Args:
        bounds: The range of the limit.
    """

    def __init__(self, bounds: ConcurrencyBounds) -> None:
        self._bounds = bounds
        self._limit = float(bounds.start)
        self._ceiling = math.inf
        """The most calls at once that are known to be served. Infinite: no refusal showed a limit."""
        self._before = self._limit
        """The limit before the ceiling was known."""
        self._boundary = 0
        """The number of the last call sent before the limit was lowered."""
        self._interval = 1
        self._step = 1
        self._since_probe = 0
        self._evidence = 0.0
        """The logarithm of how much likelier refused probes are with the limit than at random."""
        self._grown = False
        """Whether a probe was accepted."""
        self._samples: deque[tuple[int, bool]] = deque(maxlen=_SAMPLES)
        """How many calls were ahead of each of the latest calls, and whether it was accepted."""
        self._timeouts = 0
        self._accepted = 0
        """Calls accepted since the limit was lowered."""
        self._is_queueing = False
        """Whether the provider accepts more calls than it answers in time."""

    @property
    def value(self) -> int:
        """How many calls may be in progress at once."""
        return int(self._limit)

    @property
    def is_probing(self) -> bool:
        """Whether more calls are allowed than are known to be served."""
        return self._limit > self._ceiling

    def is_probe(self, ahead: int) -> bool:
        """Whether a call with this number ahead is one more than are known to be served."""
        return self.is_probing and ahead >= self._ceiling

    def accepted(self, ahead: int, number: int) -> None:
        """Takes that a call was not refused.

        Args:
            ahead: How many calls were served when it was sent.
            number: Its number.
        """
        if number > self._boundary:
            self._samples.append((ahead, True))
            self._accepted += 1
        if self.is_probing and ahead >= self._ceiling:
            self._ceiling = min(float(ahead + 1), self._limit)
            self._evidence, self._grown = 0.0, True
            if self._ceiling >= self._limit:
                self._step = 1 if self._is_queueing else 2 * self._step
                self._interval = 1
                self._start_round()

    def survived(self) -> None:
        """Takes that a call was neither refused nor answered for a while, and that others wait."""
        if math.isinf(self._ceiling) and self._limit < 2 * self._bounds.start:
            self._raise(1)

    def answered(self, *, waiting: bool) -> None:
        """Takes an answer."""
        self._timeouts = max(0, self._timeouts - 1)
        if not waiting:
            return
        if math.isinf(self._ceiling):
            self._raise(1)
            return
        self._since_probe += 1
        rounds = _QUEUE_ROUNDS if self._is_queueing else self._interval
        if self._since_probe >= rounds * self._limit and not self.is_probing:
            self._start_round()
            self._raise(self._step)

    def refused(
        self, number: int, in_flight: int, *, probe: bool, last_sent: int, random_share: float
    ) -> bool:
        """Takes a refusal. Returns whether the limit accounts for it.

        Args:
            number: The number of the call.
            in_flight: How many calls are under way and not refused.
            probe: Whether it was sent while the limit was probed.
            last_sent: The number of the last call sent.
            random_share: The share of calls that are refused at random.
        """
        if number <= self._boundary:
            self._lower(in_flight)
            return True
        if math.isinf(self._ceiling):
            if not in_flight:
                return False
            self._before = self._limit
            self._start_lowering(in_flight, last_sent)
            return True
        if probe:
            self._probe_refused(random_share)
            return True
        self._samples.append((in_flight, False))
        if not self._has_fallen(in_flight, random_share):
            return False
        self._samples.clear()
        self._start_lowering(in_flight, last_sent)
        return True

    def _probe_refused(self, random_share: float) -> None:
        if not self.is_probing:
            return
        self._evidence += math.log(_REFUSED_ABOVE / random_share)
        if self._evidence < _PROBE_EVIDENCE:
            return
        self._limit = self._ceiling
        self._interval = 1 if self._grown else min(_LONGEST_INTERVAL, 2 * self._interval)
        self._step = 1
        self._start_round()

    def _start_lowering(self, in_flight: int, last_sent: int) -> None:
        self._is_queueing = False
        self._boundary = last_sent
        self._interval = self._step = 1
        self._lower(in_flight)

    def _start_round(self) -> None:
        self._since_probe = 0
        self._evidence = 0.0
        self._grown = False

    def timed_out(self, number: int, answered: int, last_sent: int) -> None:
        """Takes that a call got no answer in time.

        The limit falls to half of the calls that were answered meanwhile, if fewer were than were not.

        Args:
            number: The number of the call.
            answered: How many calls were answered meanwhile.
            last_sent: The number of the last call sent.
        """
        if number <= self._boundary:
            return
        self._timeouts += 1
        if self._timeouts > answered:
            self._before, self._timeouts = self._limit, 0
            self._start_lowering(int(min(self._limit, answered or self._limit) / 2), last_sent)
            self._is_queueing = answered > 0

    def refute(self) -> None:
        """Takes back what the latest refusals showed: what the provider limits is the rate.

        A limit that held for a round is kept.
        """
        if self._accepted < self._ceiling < math.inf:
            self._limit, self._ceiling = max(self._limit, self._before), math.inf
        self._samples.clear()

    def _has_fallen(self, ahead: int, random_share: float) -> bool:
        """Whether calls with at least this number ahead are refused, and others are not."""
        above = [accepted for others, accepted in self._samples if others >= ahead]
        below = [accepted for others, accepted in self._samples if others < ahead]
        evidence = above.count(False) * math.log(_REFUSED_ABOVE / random_share) + above.count(
            True
        ) * math.log((1 - _REFUSED_ABOVE) / (1 - random_share))
        return evidence >= _FALL_EVIDENCE and len(below) >= 4 and below.count(False) <= 0.3 * len(below)

    def _lower(self, limit: float) -> None:
        self._limit = self._ceiling = max(float(self._bounds.minimum), min(self._limit, math.floor(limit)))
        self._accepted = 0
        self._start_round()

    def _raise(self, step: int) -> None:
        self._limit = min(self._limit + step, float(self._bounds.maximum))


_EXHAUSTED = 0.9
"""The share of calls that an exhausted provider refuses. Not 1: a bucket takes single calls."""
_THRESHOLD = math.log(1000.0)
"""A false alarm comes at most once in about 1,000 calls."""
_PRIOR_REFUSED, _PRIOR_CALLS = 0.5, 5.0
"""Before any call, the share refused at random is taken to be 10 %, as if of 5 calls."""
_MEMORY = 0.98
"""The weight of a call falls by this factor with each later call: 50 calls are remembered."""
_LOWEST_SHARE, _HIGHEST_SHARE = 0.1, 0.75
"""The range of the share. Below it too few refusals would count as proof; above it the two cannot be told
apart in a few calls."""


class RefusalTest:
    """Decides after each refusal whether the rate of a model is exhausted."""

    def __init__(self) -> None:
        self._refused, self._calls = _PRIOR_REFUSED, _PRIOR_CALLS
        self._pending = [0, 0]
        """Refused and accepted calls since the sum left 0."""
        self._sum = 0.0

    @property
    def share(self) -> float:
        """The estimated share of calls that are refused at random."""
        return min(_HIGHEST_SHARE, max(_LOWEST_SHARE, self._refused / self._calls))

    @property
    def is_suspicious(self) -> bool:
        """Whether the latest refusals make an exhausted rate likely, short of proof."""
        return self._sum >= _THRESHOLD / 2

    def accepted(self) -> None:
        """Counts a call that was not refused. Calls are counted in the order in which they were sent."""
        if self._sum <= 0:
            self._learn(0, 1)
            return
        self._pending[1] += 1
        self._sum += math.log((1 - _EXHAUSTED) / (1 - self.share))
        if self._sum <= 0:
            self._sum = 0.0
            self._learn(*self._pending)
            self._pending = [0, 0]

    def refused(self) -> bool:
        """Counts a call that was refused. Returns whether the rate is exhausted.

        If so, the refusals are not taken for random ones.
        """
        self._pending[0] += 1
        self._sum += math.log(_EXHAUSTED / self.share)
        if self._sum < _THRESHOLD:
            return False
        self._sum = 0.0
        return True

    def note(self, *, refused: bool) -> None:
        """Counts a call while the rate is taken for limited."""
        self._pending[not refused] += 1

    def take_back(self) -> None:
        """Takes all refusals since the rate was taken for limited for random ones: it was not."""
        self._learn(*self._pending)
        self._pending = [0, 0]

    def _learn(self, refused: int, accepted: int) -> None:
        memory = _MEMORY ** (refused + accepted)
        self._refused = self._refused * memory + refused
        self._calls = self._calls * memory + refused + accepted
