"""Paired tests and the intervals of paired differences."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from scipy import special

from services.alignment.bootstrap import Array, Resampling
from services.alignment.estimates import EQUAL, ONE_CLUSTER, Estimate, absent

MCNEMAR = "mcnemar-exact"
PERMUTATION = "permutation"
BONETT_PRICE = "bonett-price"
PAIRED_T = "paired-t"
CLUSTERED_T = "paired-t, by cluster"

# With more differences that are not 0, permutations are drawn instead of gone through: 65,536 of them.
_MAX_EXACT = 16
# Cells of the largest matrix of signs: also a fraction of a second between checkpoints.
_CHUNK_CELLS = 1 << 20
# Sums of the same differences in another order differ by rounding; they are as extreme as each other.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class TestResult:
    p: float
    """The two-sided p-value."""
    test: str
    """Which test."""


def mcnemar(better: int, worse: int) -> TestResult:
    """McNemar's test, exact: whether discordant items go either way equally (McNemar 1947; binomial).

    Without discordant items every outcome is as extreme, so p is 1.

    Args:
        better: Items where only the system succeeds.
        worse: Items where only the baseline does.
    """
    if not better + worse:
        return TestResult(1.0, MCNEMAR)
    return TestResult(float(scipy.stats.binomtest(better, better + worse).pvalue), MCNEMAR)


def sign_flips(differences: Array, permutations: int, resampling: Resampling) -> TestResult:
    """Paired permutation test: under no difference the signs are exchangeable (Fisher 1935, section 21).

    All assignments of signs are gone through where few differences are not 0. Else they are drawn, and the
    one that was seen counts as one of them (Phipson and Smyth 2010), so that p is never 0.

    Args:
        differences: The sums of differences, one for each item or cluster.
        permutations: How many are drawn.
        resampling: The seed, and what ends the work.
    """
    moved = np.sort(differences[differences != 0])
    seen = abs(float(moved.sum()))
    least = seen - _ROUNDING * max(1.0, float(np.abs(moved).sum()))
    if moved.size <= _MAX_EXACT:
        codes = np.arange(1 << moved.size)[:, np.newaxis]
        signs = 1.0 - 2.0 * ((codes >> np.arange(moved.size)) & 1)
        return TestResult(float(np.mean(np.abs(signs @ moved) >= least)), f"{PERMUTATION}-exact")
    generator = np.random.default_rng(resampling.seed)
    chunk = max(1, _CHUNK_CELLS // moved.size)
    extreme = 0
    for start in range(0, permutations, chunk):
        resampling.checkpoint()
        size = min(chunk, permutations - start)
        flips = np.unpackbits(
            np.frombuffer(generator.bytes(size * -(-moved.size // 8)), np.uint8).reshape(size, -1), axis=1
        )[:, : moved.size]
        sums = moved.sum() - 2.0 * (flips @ moved)
        extreme += int(np.count_nonzero(np.abs(sums) >= least))
    return TestResult((extreme + 1) / (permutations + 1), f"{PERMUTATION} ({permutations} drawn)")


def difference_of_shares(better: int, worse: int, count: int, level: float) -> Estimate:
    """The difference of two paired proportions (Bonett and Price 2012: Wald's interval, adjusted).

    Args:
        better: Items where only the system succeeds.
        worse: Items where only the baseline does.
        count: All items.
        level: The level of the interval.
    """
    if not count:
        return absent("no item was answered by both")
    up, down = (better + 1) / (count + 2), (worse + 1) / (count + 2)
    error = math.sqrt((up + down - (up - down) ** 2) / (count + 2))
    reach = float(special.ndtri(0.5 + level / 2)) * error
    centre = up - down
    value = (better - worse) / count
    return Estimate(
        value,
        count,
        max(-1.0, min(value, centre - reach)),
        min(1.0, max(value, centre + reach)),
        interval_method=BONETT_PRICE,
        standard_error=error,
    )


def mean(sums: Array, sizes: Array, level: float, *, method: str, undefined: str) -> Estimate:
    """A mean with Student's interval, of items that are each their own or lie in clusters.

    In clusters it is a ratio of sums, with the variance of the linearised one (Cochran 1977, chapter 6); for
    clusters of one item that is Student's interval (1908). There is no interval where nothing is seen of how
    much clusters differ: of one alone, or of equal ones.

    Args:
        sums: The sum of each cluster's values.
        sizes: How many items each has, at least 1.
        level: The level of the interval.
        method: The name of the interval.
        undefined: The reason to give where there are no items.
    """
    clusters, count = sizes.size, int(sizes.sum())
    if not count:
        return absent(undefined)
    value = math.fsum(sums.tolist()) / count
    if clusters < 2:
        return Estimate(value, count, withheld=ONE_CLUSTER)
    spread = float(((sums - value * sizes) ** 2).sum())
    error = math.sqrt(clusters / (clusters - 1) * spread) / count
    if error <= _ROUNDING * max(abs(value), float(np.abs(sums).max()), 1e-300):
        return Estimate(value, count, withheld=EQUAL)
    reach = float(special.stdtrit(clusters - 1, 0.5 + level / 2)) * error
    return Estimate(value, count, value - reach, value + reach, interval_method=method, standard_error=error)


def minimum_detectable_effect(error: float | None, level: float, power: float) -> float | None:
    """The smallest true difference found at the level with the power (Bloom 1995): (z + z) errors."""
    if error is None:
        return None
    return float((special.ndtri(0.5 + level / 2) + special.ndtri(power)) * error)
