"""Sums of edit distances (proScript, Table 2)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dramaturg.api.graph.v1.graph_service_pb2 import EditCounts, MeasureEditDistanceResponse

EDITS = tuple(member.name for member in EditCounts.DESCRIPTOR.fields)
"""The six kinds of edit."""


@dataclass
class DistanceSums:
    """The distances of many graphs, all in one mode."""

    measured: int = 0
    """How many there are."""
    proven: int = 0
    """How many of them are exact; of the others the bounds are known."""
    edits_proven: int = 0
    """Of how many the six counts are the only ones that the tie rule leaves."""
    lower: int = 0
    """The sum of the lower bounds."""
    upper: int = 0
    """The sum of the upper bounds: the costs of the best mappings found."""
    edits: Counter[str] = field(default_factory=Counter)
    """The edits of those mappings, by kind."""

    def add(self, distance: MeasureEditDistanceResponse) -> None:
        """Adds a distance."""
        self.measured += 1
        self.proven += distance.proven
        self.edits_proven += distance.edits_proven
        self.lower += distance.lower_bound
        self.upper += distance.upper_bound
        for edit in EDITS:
            self.edits[edit] += getattr(distance.edits, edit)

    def describe(self) -> dict[str, Any]:
        """The means as JSON: the true one lies between ``mean_lower_bound`` and ``mean``."""
        return {
            "measured": self.measured,
            "proven": self.proven,
            "edits_proven": self.edits_proven,
            "mean": self.upper / self.measured if self.measured else None,
            "mean_lower_bound": self.lower / self.measured if self.measured else None,
            "mean_edits": {
                edit: self.edits[edit] / self.measured if self.measured else None for edit in EDITS
            },
        }
