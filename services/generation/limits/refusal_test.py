"""Tells a limit of the rate from refusals at random.

Overloaded providers refuse a share of all calls at any load. A provider whose rate is exhausted
refuses almost all. The test is a CUSUM (Page, "Continuous Inspection Schemes", Biometrika 41, 1954): the
sum of log-likelihood ratios of the two, kept at 0 or above. Only calls that no known limit accounts for
are counted.
"""

from __future__ import annotations

import math

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
