"""Agreement beyond chance of many annotators: observed, Fleiss' kappa, Gwet's AC1; Cohen's kappa of two.

Categories are equal or not. Figures are functions of bootstrap weights; see ``services.alignment.bootstrap``.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from services.alignment.agreement.annotations import Patterns
from services.alignment.bootstrap import Array, Index, Statistic

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
