"""The values of a system and the baseline on the same items: means, difference, test."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from services.alignment.accuracy.confusion import AbstentionPolicy
from services.alignment.bootstrap import Array, Index
from services.alignment.comparison import bounded, paired
from services.alignment.comparison.model import Design, Runs
from services.alignment.estimates import (
    EQUAL,
    ONE_CLUSTER,
    Estimate,
    absent,
    clustered_proportion,
    proportion,
)

_NO_ITEMS = "no item was answered by both"
_NO_RANGE = "an abstention has no score: the request names no lowest_score and highest_score"
_FEWEST_CLUSTERS = 2
NO_LOSS = (
    "nothing says how much an item may lose: "
    "the request names neither largest_task_loss nor lowest_score and highest_score"
)
"""The reason why a difference has no bound."""


@dataclass(frozen=True)
class PairedValues:
    """The values of the items that count under a policy, by cluster."""

    old: Array
    new: Array
    design: Design
    codes: Index
    """The index of each item's cluster."""
    sizes: Array
    """The number of items of each cluster."""
    largest: float
    """The most items of a cluster, those without a value under the policy included."""

    @classmethod
    def make(
        cls, runs: Runs, design: Design, both: NDArray[np.bool_], system: str, policy: AbstentionPolicy
    ) -> PairedValues | Estimate:
        """The values under a policy, or an undefined estimate with the reason why there are none.

        Args:
            runs: The values of all systems.
            design: The parameters.
            both: Marks the items on which both were run.
            system: The system.
            policy: What an abstention counts as.
        """
        new, old = runs.values[system][both], runs.values[design.baseline][both]
        if policy is not AbstentionPolicy.EXCLUDED and np.isnan(new).any() | np.isnan(old).any():
            # Wrong: both are the lowest. Worst case: the system's is the lowest, the baseline's the highest.
            worst = policy is AbstentionPolicy.WORST_CASE
            ends = design.lowest, design.highest if worst else design.lowest
            if ends[0] is None or ends[1] is None:
                return absent(_NO_RANGE)
            new, old = np.where(np.isnan(new), ends[0], new), np.where(np.isnan(old), ends[1], old)
        answered = ~(np.isnan(new) | np.isnan(old))
        clusters = runs.cluster[both]
        _, codes = np.unique(clusters[answered], return_inverse=True)
        sizes: Array = np.bincount(codes).astype(np.float64)
        largest = float(np.unique(clusters, return_counts=True)[1].max(initial=1))
        return cls(old[answered], new[answered], design, codes, sizes, largest)

    @property
    def _clustered(self) -> bool:
        # Clusters of one item each are items: then the exact test of verdicts holds.
        return self.design.clustered and self.sizes.size < self.codes.size

    @property
    def _single_verdicts(self) -> bool:
        return self.design.verdicts and not self._clustered

    def mean(self, values: Array, level: float) -> Estimate:
        sums = self._sums(values)
        if not self.design.verdicts:
            method = paired.CLUSTERED_T if self._clustered else paired.PAIRED_T
            method = method.removeprefix("paired-")
            return paired.mean(sums, self.sizes, level, method=method, undefined=_NO_ITEMS)
        if self._clustered:
            return clustered_proportion(sums, self.sizes, level, undefined=_NO_ITEMS)
        return proportion(int(values.sum()), values.size, level, undefined=_NO_ITEMS)

    def test(self) -> paired.TestResult | None:
        """The test that the mean difference is 0; ``None`` without items."""
        differences = self.new - self.old
        if not differences.size:
            return None
        if self.design.anytime:
            return self._at_all_looks(self._sums(differences))
        if self._single_verdicts:
            return paired.mcnemar(int((differences > 0).sum()), int((differences < 0).sum()))
        return paired.sign_flips(self._sums(differences), self.design.permutations, self.design.resampling)

    def _at_all_looks(self, sums: Array) -> paired.TestResult | None:
        """The capital of a gambler who bets half on either side, which is an e-value (Vovk and Wang 2021)."""
        span = self.design.span
        if span is None:
            return None
        sides = [bounded.log_capital(side, self.sizes, self.largest, span, 0.0) for side in (sums, -sums)]
        return paired.TestResult(min(1.0, 2.0 * float(np.exp(-special.logsumexp(sides)))), bounded.BETTING)

    def difference(self, level: float) -> Estimate:
        """The mean difference with its interval at a level.

        The interval rests on the differences that were seen: Bonett and Price's of single verdicts, Student's
        of all others. Where all clusters differ equally it is Gaffke's. With ``design.anytime`` it holds at
        all looks.
        """
        differences = self.new - self.old
        if not differences.size:
            return absent(_NO_ITEMS)
        sums, span = self._sums(differences), self.design.span
        if self.design.anytime:
            return self._bounded(sums, level)
        if self._single_verdicts:
            better, worse = int((differences > 0).sum()), int((differences < 0).sum())
            return paired.difference_of_shares(better, worse, differences.size, level)
        method = paired.CLUSTERED_T if self._clustered else paired.PAIRED_T
        found = paired.mean(sums, self.sizes, level, method=method, undefined=_NO_ITEMS)
        if found.withheld == EQUAL:
            return self._bounded(sums, level)
        if found.lower is None or found.upper is None or span is None:
            return found
        return replace(found, lower=max(found.lower, -span), upper=min(found.upper, span))

    def lower_bound(self, level: float) -> float | None:
        """The lower bound of the difference that the gate reads.

        It is one end of an interval at the level, so it is above the difference with a probability of at most
        ``(1 - level) / 2``. ``None``: nothing says how much may be lost.
        """
        loss = self.design.loss
        if loss is None or not self.sizes.size:
            return None
        return self._lower(self._sums(self.new - self.old), loss, level)

    def _bounded(self, sums: Array, level: float) -> Estimate:
        span, count = self.design.span, int(self.sizes.sum())
        value = float(sums.sum()) / count
        if span is None or self.sizes.size < _FEWEST_CLUSTERS:
            return Estimate(value, count, withheld=NO_LOSS if span is None else ONE_CLUSTER)
        lower, upper = self._lower(sums, span, level), -self._lower(-sums, span, level)
        error = (upper - lower) / (2 * float(special.ndtri(0.5 + level / 2)))
        return Estimate(value, count, lower, upper, interval_method=self.bound_method, standard_error=error)

    @property
    def bound_method(self) -> str:
        return bounded.BETTING if self.design.anytime else bounded.GAFFKE

    def _lower(self, sums: Array, loss: float, level: float) -> float:
        error = (1 - level) / 2
        if self.design.anytime:
            return bounded.betting(
                sums, self.sizes, self.largest, loss, self.design.resampling.checkpoint, error
            )
        return bounded.gaffke(sums, self.sizes, self.largest, loss, self.design.resampling, error)

    def _sums(self, values: Array) -> Array:
        sums: Array = np.bincount(self.codes, values, self.sizes.size).astype(np.float64)
        return sums
