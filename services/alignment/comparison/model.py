"""Data model of a comparison and the release gate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from services.alignment.accuracy.confusion import AbstentionPolicy
from services.alignment.bootstrap import Array, Index, Resampling
from services.alignment.correlation.measure import CorrelationDifference
from services.alignment.estimates import Estimate


class Gate(Enum):
    """The decision of a comparison."""

    GO = "go"
    NO_GO = "no-go"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Runs:
    """The values of all systems over the items."""

    values: Mapping[str, Array]
    """By system: a value for each item, NaN where it abstained."""
    ran: Mapping[str, np.ndarray[tuple[int], np.dtype[np.bool_]]]
    """By system: whether it was run on each item."""
    human: Array
    """People's scores, NaN where they gave none."""
    group: Index
    """The index of each item's group, -1 where it is in none."""
    groups: Sequence[str]
    """The groups by name."""
    cluster: Index
    """The number of each item's cluster."""


@dataclass(frozen=True)
class Design:
    """The parameters of a comparison."""

    baseline: str
    verdicts: bool
    """Whether values are verdicts, 0 and 1."""
    clustered: bool
    """Whether a cluster may have several items."""
    lowest: float | None
    highest: float | None
    """The ends of the scale, for abstentions; of verdicts 0 and 1."""
    margin: float
    power: float
    permutations: int
    policy: AbstentionPolicy
    """The abstention policy of the gate."""
    every_group: bool
    """Whether the gate considers each group instead of all items together."""
    resampling: Resampling


@dataclass(frozen=True)
class PolicyComparison:
    """A comparison under one policy; see ``PolicyComparison`` in the contract, field by field."""

    policy: AbstentionPolicy
    baseline_mean: Estimate
    system_mean: Estimate
    difference: Estimate
    better: int = 0
    worse: int = 0
    p: float | None = None
    adjusted_p: float | None = None
    test: str = ""
    minimum_detectable_effect: float | None = None
    gate: Gate = Gate.INCONCLUSIVE


@dataclass(frozen=True)
class RunComparison:
    """One system against the baseline in one group; see ``RunComparison`` in the contract."""

    group: str
    system: str
    items: int
    unpaired: int
    clusters: int
    baseline_abstained: int
    abstained: int
    policies: Sequence[PolicyComparison]
    correlation: CorrelationDifference | None


@dataclass(frozen=True)
class Compared:
    """All comparisons and the overall decision."""

    comparisons: Sequence[RunComparison]
    gate: Gate
    reasons: Sequence[str]


def gate(difference: Estimate, adjusted_p: float | None, margin: float, level: float) -> Gate:
    """Decides one comparison.

    GO is a claim of non-inferiority: the whole interval lies above minus the margin. It is made for all
    comparisons together only where each allows it, which needs no correction (Berger 1982, intersection-union
    tests). NO-GO is made where any one does, so the p-value is to be adjusted.
    """
    if difference.value is None or difference.lower is None:
        return Gate.INCONCLUSIVE
    if difference.lower >= -margin:
        return Gate.GO
    if adjusted_p is not None and adjusted_p <= 1 - level and difference.value < 0:
        return Gate.NO_GO
    return Gate.INCONCLUSIVE


def together(gates: Iterable[Gate]) -> Gate:
    """NO-GO where one is, GO where all are and there is one, else inconclusive."""
    found = set(gates)
    if Gate.NO_GO in found:
        return Gate.NO_GO
    return Gate.GO if found == {Gate.GO} else Gate.INCONCLUSIVE
