"""Intervals of a paired mean difference that hold where few differences are not equal.

Student's interval of sparse differences is too narrow on the side of the rare ones: a sample of 50 clusters
that loses one verdict says little about clusters that lose all. The interval here is chosen by the data:

1. Fewer than half of the differences equal their median: Student's interval.
2. At least half do, and the others lie on both sides of it often enough: Student's, ``widened``.
3. Else the bound of Gaffke for means of bounded variables. It needs the width of the scale.

Tasks that change as a whole are the hard case: a sample in which none happens to be lost looks like one of
independent losses. Few losses and fewer gains, or few clusters of which none changes much, do not exclude it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import special

from services.alignment.bootstrap import Array, Resampling
from services.alignment.estimates import Estimate

GAFFKE = "gaffke"
"""The method of bounds that hold for any distribution on the scale."""
SKEWED = ", widened for skewness"
"""The suffix of the method of Student's interval of tied differences."""
SPARSE = (
    "too few differences are not equal, and the request names no lowest_score and highest_score: "
    "differences of any size may be unobserved"
)
"""The reason why a difference has no interval."""

# The constants are from simulation (test_difference_go_rates.py): with them false GO is at most .03.
# The product of the effective numbers of differences above and below the median.
_LEAST_BALANCE = 3.0
# The effective number of differences above the median, as a share of that below it.
_LEAST_RATIO = 0.5
# The square of the number of clusters that differ from the median, as a multiple of the number of clusters.
# Clusters that change by more than ``_MUCH`` of the scale show that they are not unseen.
_LEAST_SQUARE = 1.25
_MUCH = 0.3
# As many deviations of one side are enough without any on the other.
_MANY = 100.0
_TIED = 0.5
# The weight of each pseudo-cluster, and that of Johnson's term. With more, power falls by more than .05 where
# Student's interval holds.
_PSEUDO_WEIGHT = 0.1
_SKEWNESS_WEIGHT = 0.5
_DRAWS = 20_000
_FEWEST_DRAWS = 2_000
_CHUNK_CELLS = 1 << 21
_ROUNDING = 1e-9


def is_tied(differences: Array) -> bool:
    """Whether at least half of the differences equal their median."""
    return bool(np.mean(differences == np.median(differences)) >= _TIED)


def sparseness(differences: Array, *, span: float | None = None, whole: bool = False) -> str:
    """Why tied differences say too little of those that are rare or unseen for Student's interval.

    The effective number of deviations of one side is (sum of squares)^2 / sum of fourth powers: their number
    if they are equal, 1 if one is much larger than the others.

    Args:
        differences: The differences, or their means by cluster; at least half equal their median.
        span: The width of the scale; ``None`` if it is unknown.
        whole: Whether differences may be much larger than those that are seen: of several items in a
            cluster, or of scores. Differences of single verdicts are all of one size.

    Returns:
        The reason; empty if the differences are not sparse.
    """
    deviations = differences - np.median(differences)
    above, below = (
        _effective_number(deviations[deviations > 0]),
        _effective_number(deviations[deviations < 0]),
    )
    if max(above, below) >= _MANY:
        return ""
    # Numbers of equal deviations are whole; rounding must not take them below.
    if above * below < _LEAST_BALANCE - _ROUNDING:
        return "nearly all differences are equal or lie on one side"
    if not whole:
        return ""
    moved = int(np.count_nonzero(deviations))
    little = span is None or float(np.abs(deviations).max()) <= _MUCH * span
    if little and moved**2 < _LEAST_SQUARE * differences.size:
        return f"only {moved} of {differences.size} differ, and none by much"
    return "fewer than half as many gain as lose" if above < _LEAST_RATIO * below - _ROUNDING else ""


def widened(estimate: Estimate, sums: Array, sizes: Array, level: float) -> Estimate:
    """Student's interval of tied differences, with pseudo-clusters, moved on the side of the long tail.

    As Agresti and Min (2005) and Bonett and Price (2012) add pairs that differ either way, a tenth of a
    cluster is added at each end of the observed range: few differences do not look like small ones. The
    interval moves outwards on the side of the long tail by half of Johnson's term (1978, one-sided).

    Args:
        estimate: The mean difference with Student's interval.
        sums: The sum of each cluster's differences.
        sizes: The number of items of each cluster.
        level: The level of the interval.
    """
    if estimate.value is None or estimate.lower is None or estimate.upper is None:
        return estimate
    largest = float(np.abs(sums / sizes).max())
    count = sums.size + 2 * _PSEUDO_WEIGHT
    # The pseudo-clusters have mean size and opposite differences: they change the sizes alone.
    centre = float(sums.sum()) / (float(sizes.mean()) * count)
    residuals = np.append((sums - centre * sizes) / sizes.mean(), [largest - centre, -largest - centre])
    weights = np.append(np.ones(sums.size), [_PSEUDO_WEIGHT, _PSEUDO_WEIGHT])
    deviation = float(np.sqrt(weights @ residuals**2 / (count - 1)))
    skewness = float(weights @ residuals**3) / count / deviation**3
    quantile = float(special.stdtrit(sums.size - 1, 0.5 + level / 2))
    error = deviation / float(np.sqrt(count))
    shift = _SKEWNESS_WEIGHT * skewness * (1 + 2 * quantile**2) / (6 * count) * deviation
    return replace(
        estimate,
        lower=min(estimate.value, centre - quantile * error + min(0.0, shift)),
        upper=max(estimate.value, centre + quantile * error + max(0.0, shift)),
        interval_method=estimate.interval_method + SKEWED,
    )


def gaffke(sums: Array, sizes: Array, span: float, resampling: Resampling, level: float) -> Estimate:
    """A mean of bounded differences with the bounds of Gaffke (2005; Learned-Miller and Thomas 2019).

    Each bound is a quantile of the mean under random weights (Dirichlet, all 1) of the clusters and one
    further cluster, which has the worst value of the scale and the largest size. For differences of 0 and 1
    these are the bounds of Clopper and Pearson (1934). No distribution is known for which they fail.

    Args:
        sums: The sum of each cluster's differences.
        sizes: The number of items of each cluster.
        span: The highest minus the lowest score.
        resampling: The seed.
        level: The level of the interval.
    """
    rows, counts = np.unique(np.stack([sums, sizes]), axis=1, return_counts=True)
    count, largest = int(sizes.sum()), float(sizes.max())
    draws = max(_FEWEST_DRAWS, min(_DRAWS, _DRAWS * 1000 // counts.size))
    generator = np.random.default_rng(resampling.seed)
    chunk = max(1, _CHUNK_CELLS // counts.size)
    lower, upper = [], []
    for start in range(0, draws, chunk):
        resampling.checkpoint()
        size = min(chunk, draws - start)
        weights = generator.standard_gamma(counts.astype(np.float64), (size, counts.size))
        extra = generator.standard_gamma(1.0, size) * largest
        numerator, denominator = weights @ rows[0], weights @ rows[1] + extra
        lower.append((numerator - span * extra) / denominator)
        upper.append((numerator + span * extra) / denominator)
    tail = (1 - level) / 2
    value = float(sums.sum()) / count
    low = min(value, float(np.quantile(np.concatenate(lower), tail)))
    high = max(value, float(np.quantile(np.concatenate(upper), 1 - tail)))
    error = (high - low) / (2 * float(special.ndtri(0.5 + level / 2)))
    return Estimate(value, count, low, high, interval_method=GAFFKE, standard_error=error)


def _effective_number(deviations: Array) -> float:
    if not deviations.size:
        return 0.0
    squares = (deviations / np.abs(deviations).max()) ** 2
    return float(squares.sum() ** 2 / (squares**2).sum())
