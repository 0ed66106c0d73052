"""Logistic regression."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

from services.alignment.bootstrap import Array

_ITERATIONS = 50
_TOLERANCE = 1e-9
_LARGEST = 30.0
_VALUES = 2**18
"""The most values of the weighted designs that are held at once: more do not fit into the caches."""


def logistic(
    design: Array, shares: Array, weights: Array, checkpoint: Callable[[], None] = lambda: None
) -> Array:
    """The effects of logistic regressions of shares on one design, by Newton's method.

    Args:
        design: Rows x effects.
        shares: The share of successes of each row, from 0 to 1: regressions x rows, or rows of them all.
        weights: The weight of each row: regressions x rows.
        checkpoint: Called before each group of regressions; it may raise.

    Returns:
        Regressions x effects; NaN where effects are not finite or not determined.
    """
    count = weights.shape[0]
    shares = np.broadcast_to(shares, weights.shape)
    found = np.full((count, design.shape[1]), np.nan)
    size = max(1, _VALUES // max(1, design.size))
    for begin in range(0, count, size):
        checkpoint()
        group = slice(begin, begin + size)
        found[group] = _fit(design, shares[group], weights[group])
    return found


def _fit(design: Array, shares: Array, weights: Array) -> Array:
    found = np.full((weights.shape[0], design.shape[1]), np.nan)
    left = np.arange(weights.shape[0])
    effects: Array = np.zeros_like(found)
    for _ in range(_ITERATIONS):
        means: Array = special.expit(effects @ design.T)
        gradient = (weights[left] * (shares[left] - means)) @ design
        spread = weights[left] * means * (1 - means)
        hessian = (spread[:, np.newaxis] * design.T) @ design
        step = _solve(hessian, gradient)
        effects = effects + step
        with np.errstate(invalid="ignore"):
            going = np.abs(effects).max(axis=1, initial=0.0) <= _LARGEST  # not if undetermined
            ended = going & (np.abs(step).max(axis=1, initial=0.0) < _TOLERANCE)
        found[left[ended]] = effects[ended]
        left, effects = left[going & ~ended], effects[going & ~ended]
        if not left.size:
            break
    return found


def _solve(hessian: Array, gradient: Array) -> Array:
    """The Newton steps; NaN where there is none."""
    try:
        return np.asarray(np.linalg.solve(hessian, gradient[:, :, np.newaxis])[:, :, 0], np.float64)
    except np.linalg.LinAlgError:
        if hessian.shape[0] == 1:
            return np.full_like(gradient, np.nan)
        alone = (_solve(hessian[[place]], gradient[[place]]) for place in range(hessian.shape[0]))
        return np.concatenate([*alone])
