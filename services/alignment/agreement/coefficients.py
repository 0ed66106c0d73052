"""Coefficients of agreement: beyond chance, of numbers, and Krippendorff's alpha.

Agreement beyond chance of many annotators is the observed one, Fleiss' kappa and Gwet's AC1; of two also
Cohen's kappa. Categories are equal or not. Figures are functions of bootstrap weights; see
``services.alignment.bootstrap``.

Alpha (Krippendorff 2011, Computing Krippendorff's Alpha-Reliability; 2013, section 12.3) is 1 - D_o / D_e
over the items with two annotations or more. With n_ic annotators who gave item i category c, and m_i of them
in all, the coincidences are n_ic n_ik / (m_i - 1), less 1 / (m_i - 1) on the diagonal, where the distance is
0. Squared differences need no matrix of coincidences: with the moments S_0, S_1, S_2 of a distribution of
values v, the sum of n_c n_k (v_c - v_k)^2 is 2 (S_0 S_2 - S_1^2). Ordinal distances are squared differences
of mid-ranks, and every resample has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from scipy import sparse

from dramaturg.api.alignment.v1 import agreement_pb2 as pb
from services.alignment.agreement.annotations import Patterns
from services.alignment.bootstrap import Array, Index, Statistic
from services.alignment.errors import too_large

# What chance leaves over is never smaller than about the inverse of the number of annotations unless it is 0,
# and rounding never makes 0 as large.
_NOTHING_LEFT = 1e-12


def observed_agreement(patterns: Patterns) -> Statistic:
    """The share of pairs of annotators that agree, averaged over items (Fleiss 1971, P-bar; Gwet 2008, p_a).

    Args:
        patterns: Items with two annotations or more.
    """
    shares = _agreeing_shares(patterns)
    return lambda weights: (weights @ shares / weights.sum(axis=1))[:, np.newaxis]


def fleiss_kappa(patterns: Patterns) -> Statistic:
    """Kappa of many annotators (Fleiss 1971, Psychological Bulletin 76, equations 1 to 7).

    Args:
        patterns: Items with the same number of annotations, at least two.
    """
    shares, counts = _agreeing_shares(patterns), patterns.counts

    def statistic(weights: Array) -> Array:
        observed = weights @ shares / weights.sum(axis=1)
        chosen = weights @ counts
        usage = chosen / chosen.sum(axis=1, keepdims=True)
        return beyond_chance(observed, (usage**2).sum(axis=1))

    return statistic


def gwet_ac1(patterns: Patterns) -> Statistic:
    """Gwet's AC1 for many annotators and missing annotations (Gwet 2008, BJMSP 61, equations for R raters).

    Chance agreement is the mean of pi(1 - pi) over the scale times q / (q - 1); an item weighs the same in pi
    however many annotated it. Items with one annotation count for pi. The scale has the q categories that
    occur in the request; with one it is undefined.

    Args:
        patterns: Items with annotations.
    """
    several = patterns.totals >= 2
    shares = np.zeros(several.size)
    shares[several] = _agreeing_shares(patterns.pairable)
    usages = sparse.diags_array(1 / patterns.totals) @ patterns.counts
    scale = len(patterns.categories)

    def statistic(weights: Array) -> Array:
        usage = weights @ usages / weights.sum(axis=1, keepdims=True)
        pairable = weights @ several
        observed = np.divide(
            weights @ shares, pairable, out=np.full_like(pairable, np.nan), where=pairable > 0
        )
        if scale < 2:
            return np.full((weights.shape[0], 1), np.nan)
        return beyond_chance(observed, (usage * (1 - usage)).sum(axis=1) / (scale - 1))

    return statistic


def cohen_kappa(first: Index, second: Index) -> Statistic:
    """Kappa of two annotators (Cohen 1960, Educational and Psychological Measurement 20, equation 1).

    Args:
        first: What the first one chose, from 0, a row each.
        second: What the other chose for the same.
    """
    agrees = (first == second).astype(np.float64)
    scale = int(max(first.max(), second.max())) + 1
    firsts, seconds = _choices(first, scale), _choices(second, scale)

    def statistic(weights: Array) -> Array:
        total = weights.sum(axis=1)
        expected = ((weights @ firsts) * (weights @ seconds)).sum(axis=1) / total**2
        return beyond_chance(weights @ agrees / total, expected)

    return statistic


def beyond_chance(observed: Array, expected: Array) -> Array:
    """(observed - expected) / (1 - expected), a column; NaN where chance leaves nothing over."""
    left = 1 - expected
    kappa = np.full_like(left, np.nan)
    np.divide(observed - expected, left, out=kappa, where=left > _NOTHING_LEFT)
    return np.minimum(kappa, 1.0)[:, np.newaxis]


def _agreeing_shares(patterns: Patterns) -> Array:
    totals = patterns.totals
    return (patterns.squares - totals) / (totals * (totals - 1))


def _choices(codes: Index, scale: int) -> sparse.csr_array:
    """Rows x categories: 1 where a row's choice is the category."""
    return sparse.csr_array(
        (np.ones(codes.size), codes, np.arange(codes.size + 1)), shape=(codes.size, scale)
    )


def weighted_kappa(first: Array, second: Array, power: int) -> Statistic:
    """Kappa with disagreement weighted by distance (Cohen 1968, Psychological Bulletin 70).

    Args:
        first: The numbers of one annotator, a row each.
        second: Those of the other.
        power: 1 for linear weights, 2 for quadratic ones.
    """
    # The figure does not depend on the unit; extreme numbers must not overflow.
    unit = 4 * float(np.abs([first, second]).max()) or 1.0
    first, second = first / unit, second / unit
    observed = np.abs(first - second) ** power
    values, codes = np.unique(np.concatenate([first, second]), return_inverse=True)
    ours, theirs = (np.eye(values.size)[part] for part in np.split(codes, 2))
    distances = np.abs(values[:, np.newaxis] - values) ** power

    def statistic(weights: Array) -> Array:
        total = weights.sum(axis=1)
        expected = (((weights @ ours) @ distances) * (weights @ theirs)).sum(axis=1) / total**2
        kappa = np.full(total.size, np.nan)
        np.divide(weights @ observed / total, expected, out=kappa, where=expected > _NOTHING_LEFT)
        return (1 - kappa)[:, np.newaxis]

    return statistic


def intraclass_correlations(numbers: Array) -> Statistic:
    """The single-rating coefficients (1,1), (2,1) and (3,1) of Shrout and Fleiss (1979).

    Args:
        numbers: Rows x annotators.
    """
    unit = 4 * float(np.abs(numbers).max()) or 1.0
    numbers = numbers / unit
    numbers = numbers - np.median(numbers)
    raters = numbers.shape[1]
    means = numbers.mean(axis=1)

    def statistic(weights: Array) -> Array:
        count = weights.sum(axis=1)
        columns = weights @ numbers / count[:, np.newaxis]
        grand = columns.mean(axis=1)
        between = raters * (weights @ means**2 - count * grand**2)
        total = weights @ (numbers**2).sum(axis=1) - raters * count * grand**2
        by_rater = count * ((columns - grand[:, np.newaxis]) ** 2).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            items = between / (count - 1)
            within = (total - between) / (count * (raters - 1))
            judges = by_rater / (raters - 1)
            error = np.maximum(0.0, total - between - by_rater) / ((count - 1) * (raters - 1))
            found = np.stack(
                [
                    (items - within) / (items + (raters - 1) * within),
                    (items - error) / (items + (raters - 1) * error + raters * (judges - error) / count),
                    (items - error) / (items + (raters - 1) * error),
                ],
                axis=1,
            )
        undefined = (total <= _NOTHING_LEFT * (weights @ (numbers**2).sum(axis=1))) | (count < 2)
        found[undefined | ~np.isfinite(found).all(axis=1)] = np.nan
        return found

    return statistic


MAX_SETS = 2048
"""The most different sets of labels that are compared pair by pair, in 32 MiB."""


def krippendorff_alpha(patterns: Patterns, distance: pb.LabelDistance.ValueType) -> Statistic:
    """Alpha; NaN where all annotations are of one category.

    Args:
        patterns: Items with two annotations or more.
        distance: How categories differ; those with numbers need numbers as categories.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many different sets of labels.
    """
    if distance == pb.LABEL_DISTANCE_ORDINAL:
        return _of_ranks(patterns)
    if distance == pb.LABEL_DISTANCE_INTERVAL:
        return _of_values(patterns, _standardised(patterns))
    if distance == pb.LABEL_DISTANCE_MASI:
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
