"""Recalibrated confidences: Platt scaling and isotonic regression, measured on held-out halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from scipy import special

from services.alignment.bootstrap import Array, Index
from services.alignment.estimates import BIASED_RESAMPLES, Estimate, absent
from services.alignment.regression import logistic

PLATT = "platt"
ISOTONIC = "isotonic"
MAX_POINTS = 1000
"""The most points of a calibration map."""

Map = Callable[[Array], Array]
_FEWEST = 10
_EDGE = 1e-6
# The jackknife's intervals cover .84 to .95.
_DEPENDENT = "the map of each half depends on the items of the other"


@dataclass(frozen=True)
class Recalibration:
    """One method; see ``Recalibration`` in the contract."""

    method: str
    brier_score: Estimate
    expected_error: Estimate
    points: Sequence[tuple[float, float]]
    """Confidence and recalibrated confidence, fitted to all items; linear in between."""


def recalibrate(
    confidence: Array, correct: Array, cluster: Index, seed: int, bins: int
) -> list[Recalibration]:
    """Recalibrates by both methods.

    The figures are those of held-out items: each half, clusters as wholes, gets the map that is fitted to the
    other.

    Args:
        confidence: The confidences, in [0, 1].
        correct: 1 where the answer is right, else 0.
        cluster: The number of each item's cluster; -1 for an item that is its own cluster.
        seed: The seed of the halves.
        bins: The number of bins of the expected calibration error.
    """
    return [
        _recalibrate(method, fit, confidence, correct, cluster, seed, bins)
        for method, fit in ((PLATT, fit_platt), (ISOTONIC, fit_isotonic))
    ]


def fit_platt(confidence: Array, correct: Array) -> Map | None:
    """A logistic regression of correctness on the log odds of the confidence (Platt 1999, with his targets).

    Returns:
        The map; ``None`` if all answers are right, or all wrong.
    """
    right = float(correct.sum())
    wrong = correct.size - right
    if not right or not wrong:
        return None
    design = np.stack([np.ones(confidence.size), _log_odds(confidence)], axis=1)
    if not np.ptp(design[:, 1]):
        return None
    # Targets off 0 and 1 keep the effects finite where confidence separates the halves.
    targets = np.where(correct > 0, (right + 1) / (right + 2), 1 / (wrong + 2))
    intercept, slope = logistic(design, targets, np.ones((1, confidence.size)))[0]
    if np.isnan(slope):
        return None
    return lambda values: special.expit(intercept + slope * _log_odds(values))


def fit_isotonic(confidence: Array, correct: Array) -> Map | None:
    """The least-squares increasing function of the confidence (Zadrozny and Elkan 2002)."""
    if not 0 < correct.sum() < correct.size:
        return None
    values, codes, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    means = np.bincount(codes, correct) / counts
    fitted = scipy.optimize.isotonic_regression(means, weights=counts).x
    return lambda wanted: np.interp(wanted, values, fitted)


def _recalibrate(
    method: str,
    fit: Callable[[Array, Array], Map | None],
    confidence: Array,
    correct: Array,
    cluster: Index,
    seed: int,
    bins: int,
) -> Recalibration:
    count = confidence.size
    numbers = np.where(cluster < 0, np.arange(count) + int(cluster.max(initial=-1)) + 1, cluster)
    units, codes = np.unique(numbers, return_inverse=True)
    if units.size < _FEWEST:
        nothing = absent(f"{units.size} items or clusters are fewer than {_FEWEST}", count)
        return Recalibration(method, nothing, nothing, [])
    second = (np.random.default_rng(seed).permutation(units.size) % 2 == 1)[codes]
    moved = np.full(count, np.nan)
    for inside in (second, ~second):
        found = fit(confidence[~inside], correct[~inside])
        if found is not None:
            moved[inside] = found(confidence[inside])
    whole = fit(confidence, correct)
    if np.isnan(moved).any() or whole is None:
        reason = "in one half all answers are right, all are wrong, or all confidences are equal"
        nothing = absent(reason, count)
        return Recalibration(method, nothing, nothing, [])
    brier = Estimate(float(((moved - correct) ** 2).mean()), count, withheld=_DEPENDENT)
    places = np.minimum((moved * bins).astype(np.intp), bins - 1)
    gap = float(np.abs(np.bincount(places, moved - correct, bins)).sum() / count)
    values = np.unique(confidence)
    if values.size > MAX_POINTS:
        values = np.quantile(values, np.linspace(0, 1, MAX_POINTS))
    points = list(zip(values.tolist(), whole(values).tolist(), strict=True))
    return Recalibration(method, brier, Estimate(gap, count, withheld=BIASED_RESAMPLES), points)


def _log_odds(confidence: Array) -> Array:
    odds: Array = special.logit(np.clip(confidence, _EDGE, 1 - _EDGE))
    return odds
