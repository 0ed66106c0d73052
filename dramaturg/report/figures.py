"""Counts judgements while samples pass by: what the page's tables and charts are made of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.judge.usage import add_usage
from dramaturg.report.charts import Value
from dramaturg.report.views.common import reason
from dramaturg.results.flatten import flatten
from dramaturg.results.sums import ModelSums

MOST_GROUPS = 24
"""A tag with more values than this is no group: such as an id."""
_KEPT_GROUPS = 200


class Sums:
    """Sums of one model by one measure."""

    def __init__(self) -> None:
        self.judgements = self.judged = self.samples = 0
        self.total = self.squared_counts = self.cross = self.squared_totals = 0.0
        self.abstentions: Counter[str] = Counter()

    def add(self, rows: Sequence[RunResult]) -> None:
        """Adds the judgements of one sample."""
        values = [row.value for row in rows if row.HasField("value")]
        self.judgements += len(rows)
        self.abstentions.update(reason(row.abstain_reason) for row in rows if row.abstain_reason)
        if not values:
            return
        count, total = len(values), sum(values)
        self.judged += count
        self.samples += 1
        self.total += total
        self.squared_counts += count * count
        self.cross += count * total
        self.squared_totals += total * total

    def value(self) -> Value:
        """The mean, as a chart shows it."""
        return Value(self.total / self.judged if self.judged else None, self.judged, self.judgements)

    def record(self, model: str, measure: str) -> ModelSums:
        """The sums as the leaderboard takes them."""
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


class Figures:
    """All that is counted of the samples of one evaluation."""

    def __init__(self) -> None:
        self.kind = ""
        """Which evaluation it is, as RunSample names its result. Empty: no sample has a result."""
        self.samples = self.failed = 0
        self.judgements = 0
        self.abstentions: Counter[str] = Counter()
        self.usage = Usage()
        self.by_model: defaultdict[tuple[str, str], Sums] = defaultdict(Sums)
        self.by_group: dict[str, dict[tuple[str, str], Sums]] = {}
        """By group, such as "topic": the sums by (its value, model)."""

    def add(self, sample: RunSample) -> None:
        """Counts a sample."""
        self.samples += 1
        if sample.state == run_pb2.SAMPLE_STATE_FAILED:
            self.failed += 1
        kind = sample.WhichOneof("result")
        if kind is None:
            return
        self.kind = kind
        self.usage = add_usage(self.usage, getattr(sample, kind).usage)
        rows = flatten(sample)
        self.judgements += len(rows)
        self.abstentions.update(
            reason(row.abstain_reason) for row in rows if row.outcome == verdict_pb2.OUTCOME_ABSTAIN
        )
        for key, some in _parted(rows).items():
            self.by_model[key].add(some)
        if kind == "scripts":
            for key, some in _parted(rows, pooled=True).items():
                self.by_model[key].add(some)
        primary = [row for row in rows if is_primary(kind, row.measure)]
        for name, value in groups(sample).items():
            kept = self.by_group.setdefault(name, {})
            if len(kept) >= _KEPT_GROUPS:
                continue
            for (model, _), some in _parted(primary, pooled=True).items():
                kept.setdefault((value, model), Sums()).add(some)

    def sums(self) -> list[ModelSums]:
        """The sums by model and measure."""
        return [sums.record(model, measure) for (model, measure), sums in self.by_model.items()]

    def models(self) -> list[str]:
        """The models, by name."""
        return sorted({model for model, _ in self.by_model})

    def measures(self) -> list[str]:
        """The measures, in the order in which they were met."""
        return list(dict.fromkeys(measure for _, measure in self.by_model if measure))

    def shown_groups(self) -> Mapping[str, Mapping[tuple[str, str], Sums]]:
        """The groups that are worth a chart: with two values or more, but not one a sample."""
        counted = {name: {value for value, _ in cells} for name, cells in self.by_group.items()}
        return {name: self.by_group[name] for name, seen in counted.items() if 2 <= len(seen) <= MOST_GROUPS}


def is_primary(kind: str, measure: str) -> bool:
    """Whether a measure counts for what a sample is ranked by (see GetLeaderboardRequest)."""
    primary = {"decision": "correct", "dialogue": "rating", "graphs": "f1", "texts": "win/roles"}.get(kind)
    return primary is None or measure == primary


def groups(sample: RunSample) -> dict[str, str]:
    """What a sample can be grouped by: its topic, its tags."""
    named = dict(sample.tags)
    if sample.WhichOneof("result") == "scripts" and sample.scripts.task.topic:
        named.setdefault("topic", sample.scripts.task.topic)
    return named


def _parted(rows: Iterable[RunResult], *, pooled: bool = False) -> dict[tuple[str, str], list[RunResult]]:
    parted: defaultdict[tuple[str, str], list[RunResult]] = defaultdict(list)
    for row in rows:
        parted[row.model, "" if pooled else row.measure].append(row)
    return parted
