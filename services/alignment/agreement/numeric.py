"""Agreement on numbers: weighted kappas of two annotators, intraclass correlations of many."""

from __future__ import annotations

import numpy as np

from services.alignment.bootstrap import Array, Statistic

_NOTHING_LEFT = 1e-12


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
