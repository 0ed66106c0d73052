"""Data model of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    largest_loss: float | None = None
    """The most that the mean of a cluster is assumed to lose; ``None``: the width of the scale."""
    anytime: bool = False
    """Whether bounds, intervals and p-values hold at all looks at runs that go on."""

    @property
    def loss(self) -> float | None:
        """The most that the mean of a cluster may lose; ``None`` if it is unknown."""
        return self.span if self.largest_loss is None else self.largest_loss

    @property
    def span(self) -> float | None:
        """The width of the scale; ``None`` if it is unknown."""
        if self.lowest is None or self.highest is None:
            return None
        return self.highest - self.lowest


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
    false_discovery_p: float | None = None
    test: str = ""
    minimum_detectable_effect: float | None = None
    gate: Gate = Gate.INCONCLUSIVE
    corrected_gate: Gate | None = None
    """The gate, corrected for the number of systems; ``None`` if the comparison is not decided on."""
    lower_bound: float | None = None
    """The lower bound of the difference that the gate reads."""
    lower_bound_method: str = ""


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
    decided: bool = False
    """Whether the overall gate considers it."""

    def under(self, policy: AbstentionPolicy) -> PolicyComparison:
        return next(part for part in self.policies if part.policy is policy)


@dataclass(frozen=True)
class Compared:
    """All comparisons and the overall decision."""

    comparisons: Sequence[RunComparison]
    gate: Gate
    reasons: Sequence[str]
