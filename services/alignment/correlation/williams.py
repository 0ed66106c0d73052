"""Williams' test: whether two correlations with the same third variable differ."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True)
class Williams:
    """The test's outcome."""

    t: float
    """Positive where the first measure goes better."""
    p: float
    """The two-sided p-value, from Student's t with n - 3 degrees of freedom."""


def williams_test(r12: float, r13: float, r23: float, count: int) -> Williams | None:
    """Tests whether variable 1 (people) goes better with variable 2 or with 3.

    Williams (1959), The comparison of regression variables, in the form of Steiger (1980, equation 7), as
    Graham and Baldwin (2014) propose it for metrics: on absolute correlations, so that a measure for which
    less is better is not held to be worse for it. Each measure is turned round where it goes against people,
    and with it its correlation with the other, so that the three stay correlations of one set of scores.

    Args:
        r12: The correlation of people's scores with the first measure's.
        r13: The same with the second measure's.
        r23: The correlation of the measures.
        count: How many items the correlations rest on, at least 4.

    Returns:
        The outcome; ``None`` where the measures determine each other, so that there is nothing to tell apart.
    """
    r23 *= math.copysign(1.0, r12) * math.copysign(1.0, r13)
    r12, r13 = abs(r12), abs(r13)
    # The determinant of the three correlations; rounding can take it a little below 0.
    determinant = max(0.0, 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23)
    mean = (r12 + r13) / 2
    variance = 2 * determinant * (count - 1) / (count - 3) + mean**2 * (1 - r23) ** 3
    if variance <= 1e-15:
        return None
    t = (r12 - r13) * math.sqrt((count - 1) * (1 + r23) / variance)
    return Williams(t, float(2 * stats.t.sf(abs(t), count - 3)))
