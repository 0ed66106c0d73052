"""A figure, its interval, and what it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

WILSON = "wilson"
PERCENTILE = "bootstrap-percentile"

# With fewer of the resamples defined, the interval would describe a selection of them.
_LEAST_DEFINED = 0.9


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure that is there with its interval, or is absent with a reason: never both, never NaN."""

    value: float | None
    """The figure; ``None`` where it is not defined."""
    count: int
    """How many items it rests on."""
    lower: float | None = None
    """The lower end of the interval."""
    upper: float | None = None
    """The upper end of the interval."""
    undefined: str = ""
    """Why there is no figure; empty where there is one."""
    interval_method: str = ""
    """How the interval was made; empty where there is none."""


def absent(reason: str, count: int = 0) -> Estimate:
    """A figure that is not defined, and why."""
    return Estimate(None, count, undefined=reason)


def proportion(hits: int, count: int, level: float, *, undefined: str) -> Estimate:
    """A share with Wilson's score interval (Wilson 1927, the formula for p'; no continuity correction).

    Unlike the normal approximation it stays within [0, 1], and 0 of n and n of n have an interval too.

    Args:
        hits: How many items count, from 0 to ``count``.
        count: How many items there are.
        level: The level of the interval, such as 0.95.
        undefined: The reason to give where there are no items.
    """
    if not count:
        return absent(undefined)
    share = hits / count
    z = NormalDist().inv_cdf(0.5 + level / 2)
    shrink = 1 + z * z / count
    centre = (share + z * z / (2 * count)) / shrink
    margin = z / shrink * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    lower = 0.0 if hits == 0 else max(0.0, centre - margin)
    upper = 1.0 if hits == count else min(1.0, centre + margin)
    return Estimate(share, count, lower, upper, interval_method=WILSON)


def with_percentiles(value: float, count: int, replicates: NDArray[np.float64], level: float) -> Estimate:
    """A figure with the percentile interval of its replicates (Efron and Tibshirani 1993, chapter 13).

    A resample may leave the figure undefined, by drawing one label only for example. Where that is so in more
    than a tenth of them there is no interval; else the method says how many it rests on.

    Args:
        value: The figure.
        count: How many items it rests on.
        replicates: The figure in each resample, NaN where undefined; of any length.
        level: The level of the interval, such as 0.95.
    """
    defined = replicates[~np.isnan(replicates)]
    if not defined.size or defined.size < _LEAST_DEFINED * replicates.size:
        return Estimate(value, count)
    tail = (1 - level) / 2
    lower, upper = np.quantile(defined, [tail, 1 - tail])
    method = PERCENTILE
    if defined.size < replicates.size:
        method = f"{PERCENTILE} ({defined.size} of {replicates.size} resamples are defined)"
    return Estimate(value, count, float(lower), float(upper), interval_method=method)
