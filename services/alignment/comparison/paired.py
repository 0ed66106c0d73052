"""Paired tests, the intervals of paired differences, and bounds that hold for every distribution.

A sample in which no task is lost as a whole looks like one of tasks that are never lost as a whole. An
interval that rests on the differences it saw is then too narrow, with any constants: a bound that holds for
every distribution says GO to equal systems with a probability of at most ``error / (1 - margin) **
clusters``. The bounds here hold for every distribution whose clusters lose at most a stated amount, by
default the width of the scale, and have at most a stated number of items.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from scipy import special

from services.alignment.bootstrap import Array, Resampling
from services.alignment.estimates import EQUAL, ONE_CLUSTER, Estimate, absent

GAFFKE = "gaffke"
"""The method of a bound for one look at the data."""
BETTING = "betting"
"""The method of a bound that holds at all looks at once."""

_DRAWS = 20_000
_FEWEST_DRAWS = 2_000
_BOUND_CELLS = 1 << 21
# Midpoints of equal parts of [0, 1]: the uniform prior over bets. Any weights are valid.
_BETS = (np.arange(32) + 0.5) / 32
_BISECTIONS = 50
# The share of the distance that rounding may take.
_BOUND_ROUNDING = 1e-12


def gaffke(
    sums: Array, sizes: Array, largest: float, loss: float, resampling: Resampling, error: float
) -> float:
    """The lower bound of Gaffke (2005; Learned-Miller and Thomas 2019) for the mean of bounded differences.

    It is the quantile of the mean under random weights (Dirichlet, all 1) of the clusters and of one more
    cluster, which loses the most that one may lose and has the most items. For losses of 0 and 1 it is the
    bound of Clopper and Pearson (1934). No distribution is known for which it fails.

    Args:
        sums: The sum of each cluster's differences.
        sizes: The number of items of each cluster.
        largest: The most items that a cluster may have, those that are not seen included.
        loss: The most that the mean of a cluster may lose. A cluster that loses more raises it to its own
            loss.
        resampling: The seed.
        error: The probability that the bound is above the mean, e.g. 0.025.
    """
    loss = max(loss, -float((sums / sizes).min()))
    rows, counts = np.unique(np.stack([sums, sizes]), axis=1, return_counts=True)
    draws = max(_FEWEST_DRAWS, min(_DRAWS, _DRAWS * 1000 // counts.size))
    generator = np.random.default_rng(resampling.seed)
    chunk = max(1, _BOUND_CELLS // counts.size)
    means = []
    for start in range(0, draws, chunk):
        resampling.checkpoint()
        size = min(chunk, draws - start)
        weights = generator.standard_gamma(counts.astype(np.float64), (size, counts.size))
        extra = generator.standard_gamma(1.0, size) * largest
        means.append((weights @ rows[0] - loss * extra) / (weights @ rows[1] + extra))
    # The draws estimate the quantile; the order statistic below it errs on the safe side.
    place = max(0, math.floor(error * (draws + 1)) - 1)
    lowest = float(np.partition(np.concatenate(means), place)[place])
    return min(lowest, float(sums.sum() / sizes.sum()))


def betting(
    sums: Array, sizes: Array, largest: float, loss: float, checkpoint: Callable[[], None], error: float
) -> float:
    """The lower bound of a mean of bounded differences that holds at all looks at the data (by betting).

    A gambler bets that the mean is above a value. If it is not, the capital is a nonnegative supermartingale
    and reaches ``1 / error`` with a probability of at most ``error`` (Ville 1939; Waudby-Smith and Ramdas
    2024, section 4). The bound is the largest value at which it has. The bets are fractions of the largest
    safe one under a uniform prior (Cover 1991), so the order of the clusters does not matter. The order in
    which they end must not depend on their differences.

    Args:
        sums: The sum of each cluster's differences.
        sizes: The number of items of each cluster.
        largest: The most items that a cluster may have, those that are not seen included.
        loss: The most that the mean of a cluster may lose. A cluster that loses more raises it to its own
            loss.
        checkpoint: Called between parts of the work; raises to end it.
        error: The probability that any bound of a look is above the mean, e.g. 0.025.
    """
    loss = max(loss, -float((sums / sizes).min()))
    low, high = -loss, float(sums.sum() / sizes.sum())
    for _ in range(_BISECTIONS):
        if high - low <= _BOUND_ROUNDING * loss:
            break
        checkpoint()
        middle = (low + high) / 2
        if log_capital(sums, sizes, largest, loss, middle) >= -math.log(error):
            low = middle
        else:
            high = middle
    return low


def log_capital(sums: Array, sizes: Array, largest: float, loss: float, mean: float) -> float:
    """The logarithm of the capital of a gambler who starts with 1 and bets that the mean is above a value.

    Args:
        sums: The sum of each cluster's differences.
        sizes: The number of items of each cluster.
        largest: The most items that a cluster may have, those that are not seen included.
        loss: The most that the mean of a cluster may lose; at least what each has lost, and more than
            ``-mean``.
        mean: The value.
    """
    rows, counts = np.unique(np.stack([sums, sizes]), axis=1, return_counts=True)
    gains = (rows[0] - mean * rows[1]) / (largest * (loss + mean))
    # A bet of less than everything is never ruined; rounding must not make it so.
    logs = np.log1p(np.outer(_BETS, np.maximum(gains, -1.0))) @ counts
    return float(special.logsumexp(logs)) - math.log(_BETS.size)


def fewest_clusters(margin: float, loss: float, error: float) -> int | None:
    """The smallest number of clusters for which Gaffke's bound can be above minus the margin.

    Where no cluster differs the bound is that of Clopper and Pearson, ``-loss * (1 - error ** (1 /
    clusters))``.

    Returns:
        The number; ``None`` if there is none, since the margin is 0. 1 if no cluster can lose more than the
        margin.
    """
    if margin <= 0:
        return None
    if margin >= loss:
        return 1
    return math.ceil(math.log(error) / math.log1p(-margin / loss) - _BOUND_ROUNDING)


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
