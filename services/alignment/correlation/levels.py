"""Correlations at the level of summaries and of systems.

Items are systems' answers to inputs. Over all items a correlation mixes how hard inputs are with how good
answers are. The summary level correlates the systems' answers within each input and takes the mean; the
system level correlates the systems' means (Bhandari et al. 2020, section 3; Deutsch et al. 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.alignment.bootstrap import Array, Index
from services.alignment.correlation.influence import influences
from services.alignment.estimates import Estimate, absent
from services.alignment.jackknife import with_jackknife

_FEWEST = 3
_COEFFICIENTS = 3
_NOISE = "noise in the means of few systems biases it, so no interval covers"


@dataclass(frozen=True)
class Levels:
    """The clusters and systems of items."""

    cluster: Index
    """The number of each item's cluster."""
    system: Index
    """The number of each item's system, -1 without one."""
    clustered: bool
    """Whether the items are clustered."""
    systems: bool
    """Whether the items have systems."""

    @classmethod
    def independent(cls, items: int) -> Levels:
        numbers = np.arange(items)
        return cls(numbers, np.full(items, -1), clustered=False, systems=False)

    def at(self, items: Index) -> Levels:
        return Levels(self.cluster[items], self.system[items], self.clustered, self.systems)

    def clusters(self) -> Index:
        """The clusters, numbered from 0 without gaps; each item its own where they are independent."""
        if not self.clustered:
            return np.arange(self.cluster.size)
        codes: Index = np.unique(self.cluster, return_inverse=True)[1]
        return codes

    def measure(
        self, human: Array, column: Array, level: float, *, resampled: bool
    ) -> tuple[Sequence[Estimate], Sequence[Estimate]]:
        """The correlations at the level of summaries, and of systems; empty where not asked for."""
        summary = self._summary(human, column, level, resampled=resampled) if self.clustered else ()
        system = self._system(human, column) if self.systems else ()
        return summary, system

    def _summary(self, human: Array, column: Array, level: float, *, resampled: bool) -> list[Estimate]:
        codes = self.clusters()
        order = np.argsort(codes, kind="stable")
        found = []
        for inside in np.split(order, np.cumsum(np.bincount(codes))[:-1]):
            one, other = human[inside], column[inside]
            if inside.size >= _FEWEST and np.ptp(one) and np.ptp(other):
                found.append(influences(one, other)[0])
        total = int(codes.max()) + 1
        if not found:
            nothing = absent(f"no cluster has {_FEWEST} items with different scores").of(total)
            return [nothing] * _COEFFICIENTS
        values = np.array(found)
        means, count = values.mean(axis=0), values.shape[0]
        if not resampled:
            return [Estimate(float(mean), count).of(total) for mean in means]
        return [
            with_jackknife(float(mean), count, values[:, place].copy(), level).of(total)
            for place, mean in enumerate(means)
        ]

    def _system(self, human: Array, column: Array) -> list[Estimate]:
        known = self.system >= 0
        systems = np.unique(self.system[known], return_inverse=True)[1]
        count = int(systems.max(initial=-1)) + 1
        if count < _FEWEST:
            return [absent(f"{count} systems are fewer than {_FEWEST}", count)] * _COEFFICIENTS
        weights = (np.ones(systems.size), human[known], column[known])
        point = _of_means(*(np.bincount(systems, part, count).astype(np.float64) for part in weights))
        if np.isnan(point).any():
            return [absent("all systems have the same mean", count)] * _COEFFICIENTS
        return [Estimate(float(value), count, withheld=_NOISE) for value in point]


def _of_means(counts: Array, human: Array, column: Array) -> Array:
    """The three correlations of the means of systems; NaN if one has no item or all means are equal."""
    if not counts.all():
        return np.full(_COEFFICIENTS, np.nan)
    one, other = human / counts, column / counts
    if not np.ptp(one) or not np.ptp(other):
        return np.full(_COEFFICIENTS, np.nan)
    return influences(one, other)[0]
