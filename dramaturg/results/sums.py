"""Sums over judgements: enough for a mean and a clustered interval, in constant memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.names import reason_name


@dataclass(frozen=True)
class ModelSums:
    """Sums of one model's judgements by one measure.

    With n_i judgements and the sum y_i of their values in sample i, the interval of a ratio mean over samples
    of unequal size needs the number of samples and the sums of n_i, y_i, n_i^2, n_i y_i and y_i^2.
    """

    model: str
    measure: str
    judgements: int
    """All judgements, abstentions included."""
    judged: int
    """Judgements with a value: sum n_i."""
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


class SumAccumulator:
    """Adds up the judgements of one model by one measure, sample by sample."""

    def __init__(self) -> None:
        self.judgements = self.judged = self.samples = 0
        self.total = self.squared_counts = self.cross = self.squared_totals = 0.0
        self.abstentions: Counter[str] = Counter()

    def add(self, rows: Sequence[RunResult]) -> None:
        """Adds the judgements of one sample."""
        self.judgements += len(rows)
        self.abstentions.update(reason_name(row.abstain_reason) for row in rows if row.abstain_reason)
        self.add_values([row.value for row in rows if row.HasField("value")])

    def add_values(self, values: Sequence[float]) -> None:
        """Adds the values of one sample."""
        if values:
            self.add_total(len(values), sum(values))

    def add_total(self, count: int, total: float) -> None:
        """Adds the number of values of one sample, at least 1, and their sum."""
        self.judged += count
        self.samples += 1
        self.total += total
        self.squared_counts += count * count
        self.cross += count * total
        self.squared_totals += total * total

    def mean(self) -> float | None:
        """The mean of the values; None without values."""
        return self.total / self.judged if self.judged else None

    def sums(self, model: str, measure: str) -> ModelSums:
        """The sums so far, under the given model and measure."""
        return ModelSums(
            model=model,
            measure=measure,
            judgements=self.judgements,
            judged=self.judged,
            samples=self.samples,
            total=self.total,
            squared_counts=self.squared_counts,
            cross=self.cross,
            squared_totals=self.squared_totals,
            abstentions_by_reason=dict(self.abstentions),
        )
