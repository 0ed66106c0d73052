"""Weights of the members of a panel by their measured accuracy."""

from __future__ import annotations

import math

LEAST_WEIGHT = 0.01
"""The weight of a judge that is right no more often than not. Weights are positive."""


def weight_of_accuracy(correct: float, count: int) -> float:
    """The weight of a judge that was right on some of its items: the logarithm of its odds.

    For judges that err independently these weights make the weighted majority the most probable verdict
    (Nitzan and Paroush 1982). The accuracy is (correct + 1) / (count + 2), which is never 0 or 1.

    Args:
        correct: The number of items on which it was right; an estimate may be a fraction.
        count: The number of its items.
    """
    accuracy = (correct + 1) / (count + 2)
    return max(LEAST_WEIGHT, math.log(accuracy / (1 - accuracy)))
