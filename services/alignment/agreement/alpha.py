"""Krippendorff's alpha (Krippendorff 2011, Computing Krippendorff's Alpha-Reliability; 2013, section 12.3).

Alpha is 1 - D_o / D_e over the items with two annotations or more. With n_ic annotators who gave item i
category c, and m_i of them in all, the coincidences are n_ic n_ik / (m_i - 1), less 1 / (m_i - 1) on the
diagonal, where the distance is 0. Squared differences need no matrix of coincidences: with the moments S_0,
S_1, S_2 of a distribution of values v, the sum of n_c n_k (v_c - v_k)^2 is 2 (S_0 S_2 - S_1^2). Ordinal
distances are squared differences of mid-ranks, and every resample has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from scipy import sparse

from services.alignment.agreement.annotations import Distance, Patterns
from services.alignment.bootstrap import Array, Statistic
from services.alignment.errors import too_large

MAX_SETS = 2048
"""The most different sets of labels that are compared pair by pair, in 32 MiB."""


def krippendorff_alpha(patterns: Patterns, distance: Distance) -> Statistic:
    """Alpha; NaN where all annotations are of one category.

    Args:
        patterns: Items with two annotations or more.
        distance: How categories differ; those with numbers need numbers as categories.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many different sets of labels.
    """
    if distance is Distance.ORDINAL:
        return _of_ranks(patterns)
    if distance is Distance.INTERVAL:
        return _of_values(patterns, _standardised(patterns))
    if distance is Distance.MASI:
        return _of_matrix(patterns, masi_distances(cast("Sequence[tuple[str, ...]]", patterns.categories)))
    return _nominal(patterns)


def _nominal(patterns: Patterns) -> Statistic:
    totals = patterns.totals
    disagreement = (totals**2 - patterns.squares) / (totals - 1)

    def statistic(weights: Array) -> Array:
        used = weights @ patterns.counts
        total = used.sum(axis=1)
        return _alpha(weights @ disagreement, total**2 - (used**2).sum(axis=1), total)

    return statistic


def _of_values(patterns: Patterns, values: Array) -> Statistic:
    totals = patterns.totals
    disagreement = _spread(totals, patterns.counts @ values, patterns.counts @ values**2) / (totals - 1)

    def statistic(weights: Array) -> Array:
        used = weights @ patterns.counts
        total = used.sum(axis=1)
        return _alpha(weights @ disagreement, _spread(total, used @ values, used @ values**2), total)

    return statistic


def _of_ranks(patterns: Patterns) -> Statistic:
    totals = patterns.totals

    def statistic(weights: Array) -> Array:
        used = weights @ patterns.counts
        total = used.sum(axis=1)
        # The distance of two categories sums the counts between them, and half of those at both ends.
        ranks = (np.cumsum(used, axis=1) - used / 2) / total[:, np.newaxis] - 0.5
        first, second = (patterns.counts @ ranks.T).T, (patterns.counts @ (ranks**2).T).T
        disagreement = (weights * _spread(totals, first, second) / (totals - 1)).sum(axis=1)
        expected = _spread(total, (used * ranks).sum(axis=1), (used * ranks**2).sum(axis=1))
        return _alpha(disagreement, expected, total)

    return statistic


def _of_matrix(patterns: Patterns, distances: Array) -> Statistic:
    counts = patterns.counts
    disagreement = np.empty(counts.shape[0])
    for row, (start, end) in enumerate(zip(counts.indptr[:-1], counts.indptr[1:], strict=True)):
        used, chosen = counts.indices[start:end], counts.data[start:end]
        disagreement[row] = chosen @ distances[np.ix_(used, used)] @ chosen
    disagreement /= patterns.totals - 1

    def statistic(weights: Array) -> Array:
        used = weights @ counts
        return _alpha(weights @ disagreement, ((used @ distances) * used).sum(axis=1), used.sum(axis=1))

    return statistic


def _spread(count: Array, first: Array, second: Array) -> Array:
    """The sum of squared differences over all ordered pairs, from the moments of a distribution."""
    return np.maximum(2 * (count * second - first**2), 0.0)


def _alpha(observed: Array, expected: Array, total: Array) -> Array:
    """1 - (observed / n) / (expected / (n (n - 1))), a column."""
    alpha = np.full_like(expected, np.nan)
    # A sum over n^2 pairs of distances up to 4: what rounding leaves of 0 is smaller than this.
    np.divide(observed * (total - 1), expected, out=alpha, where=expected > 1e-12 * total**2)
    return (1 - alpha)[:, np.newaxis]


def _standardised(patterns: Patterns) -> Array:
    """The numbers, moved and scaled so that those in use span [-1, 1].

    That leaves alpha as it is, keeps squares finite and differences well above rounding.
    """
    values = np.array(patterns.categories, np.float64)
    used = values[np.unique(patterns.counts.indices)]
    scale = max(1.0, float(np.abs(used).max()))
    lowest, highest = used.min() / scale, used.max() / scale
    reach = (highest - lowest) / 2 or 1.0
    standardised: Array = np.clip((values / scale - (highest + lowest) / 2) / reach, -1.0, 1.0)
    return standardised


def masi_distances(categories: Sequence[tuple[str, ...]]) -> Array:
    """1 - J x M of every two sets (Passonneau 2006, Measuring Agreement on Set-valued Items).

    J is Jaccard's index; M is 1 for equal sets, 2/3 where one holds the other, 1/3 where they overlap, and 0
    where they are disjoint.

    Args:
        categories: Different sets, none empty, each without repetitions.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): there are more than ``MAX_SETS``.
    """
    if len(categories) > MAX_SETS:
        raise too_large("different sets of labels", limit=MAX_SETS, actual=len(categories))
    labels = {
        label: index for index, label in enumerate(sorted({one for each in categories for one in each}))
    }
    rows = [row for row, category in enumerate(categories) for _ in category]
    columns = [labels[label] for category in categories for label in category]
    holds = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(categories), len(labels)))
    shared: Array = (holds @ holds.T).toarray()
    sizes = np.diagonal(shared)
    union = sizes[:, np.newaxis] + sizes - shared
    smaller = np.minimum(sizes[:, np.newaxis], sizes)
    monotonicity = np.select([shared == union, shared == smaller, shared > 0], [1.0, 2 / 3, 1 / 3], 0.0)
    distances: Array = 1 - shared / union * monotonicity
    return distances
