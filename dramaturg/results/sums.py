"""Sums over judgements: enough for a mean and a clustered interval, whatever their number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ModelSums:
    """What is known of one model by one measure.

    With n_i judgements and the sum y_i of their values in sample i, the interval of a ratio mean over samples
    of unequal size needs the number of samples and the sums of n_i, y_i, n_i^2, n_i y_i and y_i^2.
    """

    model: str
    measure: str
    judgements: int
    """All, abstentions included."""
    judged: int
    """Those with a value: sum n_i."""
    samples: int
    """Samples with at least one value."""
    total: float
    """Sum y_i."""
    squared_counts: float
    """Sum n_i^2."""
    cross: float
    """Sum n_i y_i."""
    squared_totals: float
    """Sum y_i^2."""
    abstentions_by_reason: Mapping[str, int]
