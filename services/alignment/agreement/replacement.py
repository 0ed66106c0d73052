"""May a judge take the place of people? The alternative annotator test (Calderon, Reichart and Dror 2025)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from services.alignment.agreement.alpha import masi_distances
from services.alignment.agreement.annotations import Distance, Sample
from services.alignment.bootstrap import Array, Index
from services.alignment.multiplicity import benjamini_hochberg

DEFAULT_EPSILON = 0.2
"""The discount where a request names none: that of the paper for experts."""
FEWEST_ANNOTATORS = 3
"""The fewest people, as in the paper."""
FEWEST_ITEMS = 30
"""The fewest items, or clusters, on which a person is compared with the judge, as in the paper."""

_WINNING = 0.5
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ReplacedAnnotator:
    """The judge in the place of one person, over the items that both and another person labelled."""

    annotator: str
    items: int
    units: int
    """Items, or clusters of them."""
    judge_advantage: float
    """The share of items on which the judge agrees with the others at least as well as the person."""
    annotator_advantage: float
    """The share on which the person does."""
    standard_error: float | None
    """Of the difference of the two."""
    p: float | None = None
    """One-sided, of the hypothesis that the judge is worse by epsilon or more; ``None``: too few items."""
    adjusted_p: float | None = None

    @property
    def difference(self) -> float:
        """The advantage of the person less that of the judge."""
        return self.annotator_advantage - self.judge_advantage


@dataclass(frozen=True)
class Replacement:
    annotators: Sequence[ReplacedAnnotator]
    epsilon: float
    level: float
    undefined: str = ""
    """Why there is no answer; empty otherwise."""

    @property
    def winning_rate(self) -> float | None:
        """The share of people whose place the judge may take (omega)."""
        if self.undefined:
            return None
        error = 1 - self.level + _ROUNDING
        return float(
            np.mean([one.adjusted_p is not None and one.adjusted_p <= error for one in self.annotators])
        )

    @property
    def average_advantage(self) -> float | None:
        """The mean of the judge's advantages (rho)."""
        if self.undefined:
            return None
        return float(np.mean([one.judge_advantage for one in self.annotators]))

    @property
    def passed(self) -> bool:
        """Whether the judge may take the place of half of the people or more."""
        rate = self.winning_rate
        return rate is not None and rate >= _WINNING


def may_replace(sample: Sample, distance: Distance, judge: str, epsilon: float, level: float) -> Replacement:
    """Compares the judge with each person by their agreement with all other people.

    On each item of a person j the alignment of a label x with the others is the mean of [x = their label], of
    numbers minus the root of the mean squared difference, of sets 1 less MASI's distance. W_f is 1 where the
    judge's is at least that of j, W_h where that of j is at least the judge's. The judge may take the place
    of j where mean(W_h - W_f) is below epsilon: by Student's test over items, or clusters, with the p-values
    of all people adjusted by Benjamini and Yekutieli (2001). Where W_h - W_f is the same on all n units and
    not above 0, the p-value is (1 - epsilon)^n, which no distribution exceeds.

    Args:
        sample: The annotations.
        distance: How labels differ.
        judge: The annotator that is the judge.
        epsilon: By how much the judge may be worse: what it saves.
        level: One less the level is the error of the adjusted p-values.
    """
    people = [place for place, name in enumerate(sample.annotators) if name != judge]
    people = [place for place in people if (sample.annotator == place).any()]
    labelled = judge in sample.annotators and (sample.annotator == sample.annotators.index(judge)).any()
    if not labelled:
        return Replacement([], epsilon, level, f"{judge} labelled no item")
    if len(people) < FEWEST_ANNOTATORS:
        reason = f"{len(people)} annotators beside {judge} are fewer than {FEWEST_ANNOTATORS}"
        return Replacement([], epsilon, level, reason)
    table = _Table(sample, distance, sample.annotators.index(judge), people)
    compared = [one for place in people if (one := table.replaced(place, epsilon)) is not None]
    if not any(one.p is not None for one in compared):
        reason = f"no annotator shares {FEWEST_ITEMS} items with {judge} and another one"
        return Replacement([], epsilon, level, reason)
    # Benjamini and Yekutieli's is Benjamini and Hochberg's times the harmonic number, for any dependence.
    harmonic = sum(1 / rank for rank in range(1, len(compared) + 1))
    tested = benjamini_hochberg([1.0 if one.p is None else one.p for one in compared])
    found = [
        replace(one, adjusted_p=None if one.p is None or value is None else min(1.0, harmonic * value))
        for one, value in zip(compared, tested, strict=True)
    ]
    return Replacement(found, epsilon, level)


class _Table:
    """The labels by item and annotator: -1 where there is none."""

    def __init__(self, sample: Sample, distance: Distance, judge: int, people: Sequence[int]) -> None:
        items, item = np.unique(sample.item, return_inverse=True)
        codes = np.full((items.size, len(sample.annotators)), -1, np.intp)
        codes[item, sample.annotator] = sample.category
        cluster = sample.cluster_of_item[items]
        self._cluster: Index = np.where(
            cluster < 0, cluster.max(initial=-1) + 1 + np.arange(items.size), cluster
        )
        self._names, self._codes, self._judge, self._people = sample.annotators, codes, judge, people
        self._numbers: Array | None = None
        self._alike: Array | None = None
        if distance.numeric:
            self._numbers = np.array(sample.categories, np.float64)
        elif distance is Distance.MASI:
            sets = [one for one in sample.categories if isinstance(one, tuple)]
            self._alike = 1 - masi_distances(sets)

    def replaced(self, person: int, epsilon: float) -> ReplacedAnnotator | None:
        others = [place for place in self._people if place != person]
        seen = (self._codes[:, others] >= 0).any(axis=1)
        both = (self._codes[:, person] >= 0) & (self._codes[:, self._judge] >= 0) & seen
        if not both.any():
            return None
        given = self._codes[both][:, others]
        judge, own = (self._alignment(self._codes[both, place], given) for place in (self._judge, person))
        wins, holds = judge >= own - _ROUNDING, own >= judge - _ROUNDING
        difference = holds.astype(np.float64) - wins
        _, cluster = np.unique(self._cluster[both], return_inverse=True)
        sizes = np.bincount(cluster).astype(np.float64)
        sums = np.bincount(cluster, difference).astype(np.float64)
        count, units = difference.size, sizes.size
        mean = float(difference.mean())
        spread = float(((sums - mean * sizes) ** 2).sum())
        error = math.sqrt(units / (units - 1) * spread) / count if units > 1 else None
        p = None
        if units >= FEWEST_ITEMS and error is not None:
            if error > _ROUNDING:
                p = float(special.stdtr(units - 1, (mean - epsilon) / error))
            else:
                p = (1 - epsilon) ** units if mean <= 0 else 1.0
        name = self._names[person]
        return ReplacedAnnotator(name, count, units, float(wins.mean()), float(holds.mean()), error, p)

    def _alignment(self, own: Index, others: Index) -> Array:
        """How well each label agrees with those of the others that there are."""
        there = others >= 0
        if self._numbers is not None:
            squares = (self._numbers[own][:, np.newaxis] - self._numbers[others]) ** 2
            found: Array = -np.sqrt((squares * there).sum(axis=1) / there.sum(axis=1))
            return found
        alike = (
            own[:, np.newaxis] == others if self._alike is None else self._alike[own[:, np.newaxis], others]
        )
        shares: Array = (alike * there).sum(axis=1) / there.sum(axis=1)
        return shares
