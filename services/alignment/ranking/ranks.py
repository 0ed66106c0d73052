"""Ranks and rank correlations of many rankings at once, one in each row of a matrix."""

from __future__ import annotations

import numpy as np
from scipy import stats

from services.alignment.bootstrap import Array

# Means of the same scores in another order differ by rounding; they are a tie. Digits of the largest mean.
_DIGITS = 12


def complete(replicates: Array) -> Array:
    """The resamples in which nothing is undefined."""
    return replicates[~np.isnan(replicates).any(axis=1)]


def ranks(means: Array) -> Array:
    """Ranks from 1 for the highest, ties in the middle; one row each."""
    if not means.size:
        return means
    scale = float(np.abs(means).max()) or 1.0
    found: Array = stats.rankdata(-np.round(means / scale, _DIGITS), axis=1)
    return found


def taus(first: Array, second: Array) -> Array:
    """Kendall's tau-b (Kendall 1945) of the rows of two matrices, NaN where one is all ties."""
    agreeing = np.zeros(first.shape[0])
    untied = np.zeros((2, first.shape[0]))
    for step in range(1, first.shape[1]):
        signs = [np.sign(ranks[:, step:] - ranks[:, :-step]) for ranks in (first, second)]
        agreeing += (signs[0] * signs[1]).sum(axis=1)
        untied += np.stack([np.abs(one).sum(axis=1) for one in signs])
    return _quotient(agreeing, np.sqrt(untied[0] * untied[1]))


def rhos(first: Array, second: Array) -> Array:
    """Spearman's rho of the rows of two matrices of ranks, NaN where one is all ties."""
    one, other = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (first, second))
    return _quotient((one * other).sum(axis=1), np.sqrt((one**2).sum(axis=1) * (other**2).sum(axis=1)))


def _quotient(numerator: Array, denominator: Array) -> Array:
    quotient = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    clipped: Array = np.clip(quotient, -1.0, 1.0)
    return clipped
