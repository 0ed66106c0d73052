"""Logistic regression."""

from __future__ import annotations

import numpy as np
from scipy import special

from services.alignment.bootstrap import Array

_ITERATIONS = 50
_TOLERANCE = 1e-9
_LARGEST = 30.0


def logistic(design: Array, shares: Array, weights: Array) -> Array | None:
    """The effects of a logistic regression of shares, by Newton's method.

    Args:
        design: Rows x effects.
        shares: The share of successes of each row, from 0 to 1.
        weights: The weight of each row.

    Returns:
        The effects; ``None`` if they are not finite or not determined.
    """
    effects = np.zeros(design.shape[1])
    for _ in range(_ITERATIONS):
        means = special.expit(design @ effects)
        gradient = design.T @ (weights * (shares - means))
        hessian = (design.T * (weights * means * (1 - means))) @ design
        try:
            step = np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:
            return None
        effects = effects + step
        if not np.isfinite(effects).all() or np.abs(effects).max(initial=0.0) > _LARGEST:
            return None
        if np.abs(step).max(initial=0.0) < _TOLERANCE:
            return effects
    return None
