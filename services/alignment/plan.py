"""How many items a study needs, from the standard error of a pilot."""

from __future__ import annotations

import math
from dataclasses import dataclass

import scipy
from scipy import special

from services.alignment.comparison.paired import fewest_clusters

_CAUTION = 0.8
_MOST_UNITS = 10**9
# Below it the normal part of the bound does not count, and its formula is not stable.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Goal:
    """What the study is to show. One of ``effect`` and ``half_width`` is given."""

    level: float
    power: float
    effect: float | None = None
    margin: float | None = None
    half_width: float | None = None
    loss: float = 1.0
    """The most that the mean of one unit may lose, for the gate at the margin."""

    @property
    def distance(self) -> float:
        """How far the true value is from what has to be excluded."""
        if self.half_width is not None:
            return self.half_width
        effect = self.effect or 0.0
        return effect + self.margin if self.margin is not None else abs(effect)


def units_needed(error: float, units: int, goal: Goal) -> int | None:
    """The number of units: items, or clusters if the pilot's error is that of clusters.

    The error shrinks with the root of the number of units, and the quantiles depend on it too, so the number
    is the smallest that is enough. A difference is detected by a two-sided test, or by the lower bound of the
    gate.

    Args:
        error: The standard error of the pilot's figure.
        units: The number of units of the pilot.
        goal: What is to be shown.

    Returns:
        The number; ``None`` if none is enough.
    """
    if goal.distance <= 0:
        return None
    deviation = error * math.sqrt(units)
    low, high = 1, 2
    while not _enough(deviation, high, goal):
        low, high = high, high * 2
        if high > _MOST_UNITS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _enough(deviation, middle, goal) else (middle, high)
    return high


def cautious_error(error: float, units: int) -> float:
    """The standard error with the deviation at the upper end of its 80 percent interval (Browne 1995)."""
    return error * math.sqrt((units - 1) / float(scipy.stats.chi2.ppf(1 - _CAUTION, units - 1)))


def fewest_units(goal: Goal) -> int | None:
    """The number of units below which the gate is never GO; ``None`` without a margin."""
    return None if goal.margin is None else fewest_clusters(goal.margin, goal.loss, (1 - goal.level) / 2)


def _enough(deviation: float, units: int, goal: Goal) -> bool:
    if units < 2:
        return False
    error = deviation / math.sqrt(units)
    if goal.margin is not None:
        return _passes_gate(error, units, goal)
    if error == 0:
        return True
    quantile = float(special.stdtrit(units - 1, 0.5 + goal.level / 2))
    if goal.half_width is not None:
        return quantile * error <= goal.half_width
    power = float(scipy.stats.nct.sf(quantile, units - 1, goal.distance / error))
    if math.isnan(power):
        power = float(special.ndtr(goal.distance / error - quantile))
    return power >= goal.power


def _passes_gate(error: float, units: int, goal: Goal) -> bool:
    """Whether the lower bound of Gaffke is above minus the margin with the power.

    The random mean of which the bound is a quantile is about the mean less the sum of a normal variable with
    the standard error and an exponential one with the mean ``loss / units``: the weight of the one more unit.
    """
    fewest = fewest_units(goal)
    if fewest is None or units < fewest:
        return False
    tail, unseen = (1 - goal.level) / 2, goal.loss / units
    if error <= _ROUNDING * unseen:
        return goal.distance >= goal.loss * -math.expm1(math.log(tail) / units)
    reach = float(scipy.stats.exponnorm.isf(tail, unseen / error, scale=error))
    return float(special.ndtr((goal.distance - reach) / error)) >= goal.power
