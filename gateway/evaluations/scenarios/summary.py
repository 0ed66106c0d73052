"""Figures of written scenarios (Choice-75, section 2.4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult, WrittenScenario
from dramaturg.api.evaluation.v1.summary_pb2 import ScenarioFigures, Summary, SummaryOptions
from dramaturg.results.means import mean_of_sums
from dramaturg.results.names import abstention_name
from dramaturg.results.scenarios import FORMS, TARGETS, is_usable
from dramaturg.results.sums import SumAccumulator
from gateway.evaluations.statistics import Statistics, estimate_of
from gateway.evaluations.summary import KindFigures, KindSummary

MAX_REASONS = 100
"""The most reasons of unchecked briefs that are told apart. They are text."""
OTHER = "other"
"""The further reasons."""

Setup = tuple[str, str, str]
"""The model, the form and the targeted option; empty for both options."""


class ScenariosKindSummary(KindSummary):
    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], ScenariosResult]]:
        yield {**sample.scenarios.tags, **sample.tags}, sample.scenarios

    def figures(self, options: SummaryOptions) -> ScenarioCounts:
        del options
        return ScenarioCounts()


@dataclass
class _Counts:
    scenarios: int = 0
    written: int = 0
    usable: int = 0
    leaking: int = 0
    duplicates: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    abstentions: Counter[str] = field(default_factory=Counter)
    sums: SumAccumulator = field(default_factory=SumAccumulator)

    def add(self, one: WrittenScenario) -> None:
        self.scenarios += 1
        self.written += bool(one.scenario)
        self.usable += is_usable(one)
        self.leaking += one.leaks_option
        self.duplicates += bool(one.duplicate_of)
        if one.failure_reason:
            self.failures[abstention_name(one.failure_reason)] += 1
        elif not one.scenario:
            self.abstentions[abstention_name(one.abstain_reason)] += 1


class ScenarioCounts(KindFigures):
    """Counts of scenarios by model, form and targeted option."""

    def __init__(self) -> None:
        self._briefs = 0
        self._unchecked: Counter[str] = Counter()
        self._counts: defaultdict[Setup, _Counts] = defaultdict(_Counts)

    def add(self, parts: Sequence[ScenariosResult]) -> None:
        for result in parts:
            self._briefs += 1
            if reason := result.duplicates_unchecked:
                known = reason in self._unchecked or len(self._unchecked) < MAX_REASONS
                self._unchecked[reason if known else OTHER] += 1
            values: defaultdict[Setup, list[float]] = defaultdict(list)
            for one in result.scenarios:
                for target in (TARGETS.get(one.target, ""), ""):
                    setup = one.model, FORMS.get(result.form, ""), target
                    self._counts[setup].add(one)
                    if not one.abstain_reason:
                        values[setup].append(float(is_usable(one)))
            for setup, some in values.items():
                self._counts[setup].sums.add_values(some)

    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        del statistics
        if not tags:
            summary.scenarios.brief_count = self._briefs
            summary.scenarios.unchecked_briefs_by_reason.update(self._unchecked)
        # Both options together come last.
        ordered = sorted(self._counts.items(), key=lambda one: (one[0][:2], not one[0][2], one[0][2]))
        for (model, form, target), counts in ordered:
            figures = ScenarioFigures(
                tags=tags,
                model=model,
                form=form,
                target=target,
                scenario_count=counts.scenarios,
                written_count=counts.written,
                usable_count=counts.usable,
                leaking_count=counts.leaking,
                duplicate_count=counts.duplicates,
                failures_by_reason=counts.failures,
                abstentions_by_reason=counts.abstentions,
                usable_rate=estimate_of(mean_of_sums(counts.sums.sums("", ""), 0.0, 1.0), counts.scenarios),
                usable_rate_lowest=counts.usable / counts.scenarios,
                usable_rate_highest=(counts.usable + counts.abstentions.total()) / counts.scenarios,
            )
            summary.scenarios.figures.append(figures)
