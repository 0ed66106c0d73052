"""Random draws of judgements with known inclusion probabilities.

Estimates weight labels inversely to the probabilities, so that labels may be spent where they tell more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dramaturg.api.evaluation.v1.label_service_pb2 import (
    LABEL_DRAW_ACTIVE,
    LABEL_DRAW_STRATIFIED,
    LabelDraw,
)
from dramaturg.service.errors import invalid

Array = NDArray[np.float64]
Index = NDArray[np.int64]

UNIFORM_SHARE = 0.5
"""The share of uniform probability in an active draw: no weight is more than its inverse times the mean."""
_FEWEST = 2
"""The least items of a stratum, or all that it has: two have a variance."""


@dataclass(frozen=True)
class Judged:
    """The judgements to draw from, in their order."""

    values: Array
    """The judge's values, NaN for an abstention."""
    confidences: Array
    """The judge's confidences, NaN where there is none."""


def strata(values: Array) -> Array:
    """The strata of judgements: their values, to a tenth up to 1 and to a whole number above. NaN: none."""
    rounded: Array = np.where(values <= 1, np.round(values, 1), np.round(values))
    return rounded


def stratum(value: float | None) -> str:
    """The name of a judgement's stratum. Empty: it is an abstention."""
    return "" if value is None else f"{strata(np.array(value)):g}"


def choose(judged: Judged, draw: LabelDraw.ValueType, size: int, seed: int) -> Mapping[int, float]:
    """Draws judgements, in random order. Equal arguments draw equal ones.

    Each stratum is drawn by systematic sampling of a random order with probabilities proportional to size
    (Hartley and Rao 1962), so the number is fixed. With equal probabilities it is a simple random sample.

    Args:
        judged: The judgements.
        draw: How they are drawn; unspecified: uniformly.
        size: The maximum number.
        seed: The seed.

    Returns:
        The inclusion probabilities of those that are drawn, by their place.

    Raises:
        ServiceError: INVALID_ARGUMENT: the judgements have no value to stratify by, or no confidence, or
            there are too few items for the strata.
    """
    count = judged.values.size
    random, size = np.random.default_rng(seed), min(size, count)
    stratum, sizes = np.zeros(count, np.int64), np.array([size])
    weights = np.ones(count)
    if draw == LABEL_DRAW_STRATIFIED and count:
        if np.isnan(judged.values).all():
            raise invalid("draw", "is LABEL_DRAW_STRATIFIED, and no judgement has a value; draw uniformly")
        _, stratum = np.unique(strata(judged.values), return_inverse=True)
        counts = np.bincount(stratum)
        if size < (fewest := int(np.minimum(counts, _FEWEST).sum())):
            raise invalid("sample_size", f"is {size}; {counts.size} strata need {fewest} items")
        sizes = _allocated(counts, size)
    elif draw == LABEL_DRAW_ACTIVE and count:
        weights = _uncertainties(judged.confidences)
    found: dict[int, float] = {}
    for number, wanted in enumerate(sizes):
        places = np.flatnonzero(stratum == number)
        probabilities = _probabilities(weights[places], int(wanted))
        drawn = _systematic(probabilities, int(wanted), random)
        found |= zip(places[drawn].tolist(), probabilities[drawn].tolist(), strict=True)
    order = random.permutation(sorted(found))
    return {place: found[place] for place in order.tolist()}


def _allocated(counts: Index, size: int) -> Index:
    """The sizes of the strata, by the square roots of their counts (Bankier 1988, power allocation)."""
    sizes = np.minimum(counts, _FEWEST)
    # Each further item goes to the stratum with the highest average (Jefferson's divisors).
    averages = [
        np.sqrt(count) / np.arange(least + 1, min(int(count), size) + 1)
        for count, least in zip(counts, sizes, strict=True)
    ]
    owners = np.repeat(np.arange(counts.size), [one.size for one in averages])
    highest = np.argsort(-np.concatenate(averages), kind="stable")[: size - int(sizes.sum())]
    allocated: Index = sizes + np.bincount(owners[highest], minlength=counts.size)
    return allocated


def _uncertainties(confidences: Array) -> Array:
    """The standard deviations of the judge's errors, as far as it knows, mixed with the same for all.

    A judgement without a confidence is as uncertain as the most uncertain one.
    """
    if np.isnan(confidences).all():
        raise invalid(
            "draw", "is LABEL_DRAW_ACTIVE, and no judgement has a confidence; draw stratified or uniformly"
        )
    errors = np.sqrt(np.clip(1 - confidences, 0, 1))
    errors = np.where(np.isnan(errors), np.nanmax(errors), errors)
    mean = float(errors.mean())
    if mean <= 0:
        return np.ones_like(errors)
    mixed: Array = UNIFORM_SHARE + (1 - UNIFORM_SHARE) * errors / mean
    return mixed


def _probabilities(weights: Array, size: int) -> Array:
    """Probabilities proportional to the weights that add up to ``size``, none above 1."""
    certain = np.zeros(weights.size, bool)
    while True:
        left = size - int(certain.sum())
        rest = float(weights[~certain].sum())
        found = np.where(certain, 1.0, weights * left / rest if rest > 0 else 0.0)
        above = (found >= 1) & ~certain
        if not above.any():
            return found
        certain |= above


def _systematic(probabilities: Array, size: int, random: np.random.Generator) -> Index:
    if size >= probabilities.size:
        return np.arange(probabilities.size)
    order = random.permutation(probabilities.size)
    ends = np.cumsum(probabilities[order])
    points = (random.random() + np.arange(size)) * ends[-1] / max(1, size)
    found: Index = order[np.minimum(np.searchsorted(ends, points, side="right"), order.size - 1)]
    return found
