"""Data model of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dramaturg.api.alignment.v1 import accuracy_pb2
from services.alignment.bootstrap import Array, Index, Resampling


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
    policy: accuracy_pb2.AbstentionPolicy.ValueType
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
