"""Aggregates samples into the figures of the report's tables and charts, one sample at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.judge.usage import add_usage
from dramaturg.kinds import sample_kind
from dramaturg.results.leaderboard import primary_measure
from dramaturg.results.names import reason_name
from dramaturg.results.rows import flatten
from dramaturg.results.sums import ModelSums, SumAccumulator

MAX_GROUPS = 24
"""The most values of a tag that is charted; tags with more are identifiers."""
_KEPT_GROUPS = 200


class ReportAggregator:
    """Counts and sums over the samples of one evaluation."""

    def __init__(self) -> None:
        self.kind = ""
        """The name of the result in RunSample. Empty: no sample has a result."""
        self.samples = self.failed = 0
        self.judgements = 0
        self.abstentions: Counter[str] = Counter()
        self.usage = Usage()
        self.by_model: defaultdict[tuple[str, str], SumAccumulator] = defaultdict(SumAccumulator)
        self._by_group: dict[str, dict[tuple[str, str, str], SumAccumulator]] = {}

    def add(self, sample: RunSample) -> None:
        """Adds a sample."""
        self.samples += 1
        if sample.state == run_pb2.SAMPLE_STATE_FAILED:
            self.failed += 1
        found = sample_kind(sample)
        if found is None:
            return
        kind = found.results
        self.kind = kind.name
        self.usage = add_usage(self.usage, getattr(sample, kind.name).usage)
        rows = flatten(sample)
        self.judgements += len(rows)
        self.abstentions.update(
            reason_name(row.abstain_reason) for row in rows if row.outcome == verdict_pb2.OUTCOME_ABSTAIN
        )
        for key, some in _partition(rows).items():
            self.by_model[key].add(some)
        if not kind.primary_measure:
            for key, some in _partition(rows, pooled=True).items():
                self.by_model[key].add(some)
        primary = _partition(rows, pooled=not kind.primary_measure)
        for name, value in groups(sample).items():
            kept = self._by_group.setdefault(name, {})
            if len(kept) >= _KEPT_GROUPS:
                continue
            for (model, measure), some in primary.items():
                if kind.is_primary(measure):
                    kept.setdefault((value, model, measure), SumAccumulator()).add(some)

    def sums(self) -> list[ModelSums]:
        """The sums by model and measure."""
        return [sums.sums(model, measure) for (model, measure), sums in self.by_model.items()]

    def models(self) -> list[str]:
        """The models, sorted by name."""
        return sorted({model for model, _ in self.by_model})

    def measures(self) -> list[str]:
        """The measures, in order of first occurrence."""
        return list(dict.fromkeys(measure for _, measure in self.by_model if measure))

    @property
    def primary_measure(self) -> str:
        """The measure of the ranking and of the charts by group; empty: all criteria together."""
        return primary_measure(self.kind, (measure for _, measure in self.by_model))

    def shown_groups(self) -> Mapping[str, Mapping[tuple[str, str], SumAccumulator]]:
        """Sums of the primary measure by (value, model), for each group with 2 to ``MAX_GROUPS`` values."""
        shown = {}
        for name, kept in self._by_group.items():
            sums = {
                (value, model): some
                for (value, model, measure), some in kept.items()
                if measure == self.primary_measure
            }
            if 2 <= len({value for value, _ in sums}) <= MAX_GROUPS:
                shown[name] = sums
        return shown


def groups(sample: RunSample) -> dict[str, str]:
    """The groups of a sample: its tags, and the groups of its result."""
    kind = sample_kind(sample)
    if kind is None:
        return dict(sample.tags)
    return {**kind.results.groups(getattr(sample, kind.results.name)), **sample.tags}


def _partition(rows: Iterable[RunResult], *, pooled: bool = False) -> dict[tuple[str, str], list[RunResult]]:
    partitioned: defaultdict[tuple[str, str], list[RunResult]] = defaultdict(list)
    for row in rows:
        partitioned[row.model, "" if pooled else row.measure].append(row)
    return partitioned
