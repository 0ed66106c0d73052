"""The values of a system and the baseline on the same items: means, difference, test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from services.alignment.accuracy.confusion import AbstentionPolicy
from services.alignment.bootstrap import Array, Index
from services.alignment.comparison import bounded, paired
from services.alignment.comparison.model import Design, Runs
from services.alignment.estimates import ONE_CLUSTER, Estimate, absent, clustered_proportion, proportion

_NO_ITEMS = "no item was answered by both"
_NO_RANGE = "an abstention has no score: the request names no lowest_score and highest_score"
_FEWEST_CLUSTERS = 2


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
        _, codes = np.unique(runs.cluster[both][answered], return_inverse=True)
        sizes: Array = np.bincount(codes).astype(np.float64)
        return cls(old[answered], new[answered], design, codes, sizes)

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
        if self.design.verdicts and not self._clustered:
            return paired.mcnemar(int((differences > 0).sum()), int((differences < 0).sum()))
        return paired.sign_flips(self._sums(differences), self.design.permutations, self.design.resampling)

    @cached_property
    def sparseness(self) -> str:
        """Why Student's interval of the difference does not hold; empty if it does."""
        means = self._sums(self.new - self.old) / self.sizes
        if not means.size or not bounded.is_tied(means):
            return ""
        return bounded.sparseness(means, span=self.design.span, whole=not self._single_verdicts)

    def difference(self, level: float) -> Estimate:
        """The mean difference with its interval at a level."""
        differences = self.new - self.old
        if not differences.size:
            return absent(_NO_ITEMS)
        sums, span = self._sums(differences), self.design.span
        if self.sparseness:
            if span is None or self.sizes.size < _FEWEST_CLUSTERS:
                reason = bounded.SPARSE if span is None else ONE_CLUSTER
                return Estimate(float(differences.mean()), differences.size, withheld=reason)
            return bounded.gaffke(sums, self.sizes, span, self.design.resampling, level)
        if self._single_verdicts:
            better, worse = int((differences > 0).sum()), int((differences < 0).sum())
            return paired.difference_of_shares(better, worse, differences.size, level)
        method = paired.CLUSTERED_T if self._clustered else paired.PAIRED_T
        found = paired.mean(sums, self.sizes, level, method=method, undefined=_NO_ITEMS)
        tied = bounded.is_tied(sums / self.sizes)
        return bounded.widened(found, sums, self.sizes, level) if tied else found

    def corrected_lower(self, level: float) -> float | None:
        """The lower bound of the difference at a level that is corrected for several systems.

        Far in its tail Student's interval excludes too much where the differences of clusters have long
        tails: .005 for .0025. The quantile has the degrees of freedom of their variance (Satterthwaite 1946),
        which their kurtosis reduces.
        """
        found = self.difference(level)
        if found.value is None or found.lower is None or self.sparseness or self._single_verdicts:
            return found.lower
        residuals = self._sums(self.new - self.old) - found.value * self.sizes
        reach = paired.student_quantile(residuals, level) * (found.standard_error or 0.0)
        return min(found.lower, found.value - reach)

    def _sums(self, values: Array) -> Array:
        sums: Array = np.bincount(self.codes, values, self.sizes.size).astype(np.float64)
        return sums
