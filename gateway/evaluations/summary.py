"""Summaries: the figures of many samples, computed in one pass.

Every aggregate that a command, report or client shows comes from here. Each kind adds its figures in its
module ``gateway.evaluations.<kind>.summary``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_FAILED, RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.summary_pb2 import JudgeFigures, ModelFailures, Summary, SummaryOptions
from dramaturg.judge.provenance import add_usage
from dramaturg.kinds import find_kind
from dramaturg.results.coverage import status_name
from dramaturg.results.kind import JudgeAnswer
from dramaturg.results.leaderboard import DEFAULT_MINIMUM_COVERAGE, leaderboard, primary_measure
from dramaturg.results.means import SumAccumulator
from dramaturg.results.names import abstention_name, reason_name
from dramaturg.results.rows import flatten
from dramaturg.results.setups import Setup, setup_of
from dramaturg.service.errors import invalid
from gateway.evaluations.judge_comparisons import ComparedItem, ComparedJudgement, JudgeComparisons
from gateway.evaluations.statistics import SampleMeans, Statistics, add_comparisons, ranked_models

MAX_GROUPS = 1000
"""The most groups of a summary. Tags with more values identify samples."""

MODEL_GROUP = "model_group"
"""The tag of parts with one model: its group by ``SummaryOptions.model_groups``."""

Tags = tuple[tuple[str, str], ...]
"""The tags of a group with their values; empty for all samples."""


class KindFigures(ABC):
    """The figures of one kind for one group of samples. It keeps numbers, not texts."""

    @abstractmethod
    def add(self, parts: Sequence[Any]) -> None:
        """Adds the parts of one sample that belong to the group."""

    @abstractmethod
    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        """Writes the figures.

        Args:
            tags: The group; empty for all samples.
            summary: The summary; its options are set.
            statistics: Computes statistics.
        """


class KindSummary(ABC):
    """How samples of a kind are summarised."""

    figures_type: ClassVar[type[KindFigures]]
    """The figures of one group, which depend on no option unless ``figures`` is overridden."""

    def compared_items(self, sample: RunSample) -> Iterator[ComparedItem]:
        """The candidates and texts of a sample that judges are compared on."""
        del sample
        yield from ()

    def compared_judgements(self, sample: RunSample) -> Iterator[ComparedJudgement]:
        """The other items of a sample that judges are compared on."""
        del sample
        yield from ()

    def model_of(self, part: Any) -> str | None:
        """The model under test of a part. None: it has several, or none."""
        del part
        return None

    @abstractmethod
    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], Any]]:
        """The parts of a sample that are grouped apart, each with its tags."""

    def figures(self, options: SummaryOptions) -> KindFigures:
        """New figures of one group."""
        del options
        return self.figures_type()


class Summarizer:
    """Computes the summary of samples, which are added one by one.

    Args:
        kinds: The kinds by the name of their result in ``RunSample``.
        options: The options.
    """

    def __init__(self, kinds: Mapping[str, KindSummary], options: SummaryOptions) -> None:
        self._kinds = kinds
        self._options = SummaryOptions()
        self._options.CopyFrom(options)
        if not self._options.HasField("minimum_coverage"):
            self._options.minimum_coverage = DEFAULT_MINIMUM_COVERAGE
        self._kind = ""
        self._samples = self._failed = self._judgements = 0
        self._failures: Counter[str] = Counter()
        self._abstentions: Counter[str] = Counter()
        self._model_failures: Counter[tuple[str, str]] = Counter()
        self._usage = Usage()
        self._judges: dict[Setup, JudgeFigures] = {}
        self._sums: defaultdict[tuple[str, str], SumAccumulator] = defaultdict(SumAccumulator)
        self._groups: dict[Tags, KindFigures] = {}
        self._means = SampleMeans()
        self._comparisons = JudgeComparisons()

    def add(self, sample: RunSample) -> None:
        """Adds a finished sample.

        Raises:
            ServiceError: INVALID_ARGUMENT: the sample is of another kind, or there are too many groups.
        """
        name = sample.WhichOneof("result")
        if sample.state == SAMPLE_STATE_FAILED:
            self._failed += 1
            self._failures[_failure(sample)] += 1
        elif name is None:
            return  # not finished
        self._samples += 1
        if name is None:
            return
        if self._kind not in ("", name):
            raise invalid("samples", f"has results of {self._kind!r} and of {name!r}")
        self._kind = name
        self._usage = add_usage(self._usage, getattr(sample, name).usage)
        rows = flatten(sample, texts=False)
        self._count(rows)
        if (found := find_kind(name)) is not None:
            for answer in found.results.answers(getattr(sample, name), rows):
                self._note_judge(answer)
        kind = self._kinds[name]
        self._comparisons.add(sample, kind.compared_items(sample), kind.compared_judgements(sample))
        for tags, parts in self._grouped(sample).items():
            figures = self._groups.get(tags)
            if figures is None:
                if len(self._groups) >= MAX_GROUPS:
                    raise invalid("options.groupings", f"yields more than {MAX_GROUPS} groups")
                figures = self._groups[tags] = self._kinds[name].figures(self._options)
            figures.add(parts)

    def summary(self, statistics: Statistics) -> Summary:
        """The figures of all samples so far."""
        summary = Summary(
            sample_count=self._samples,
            failed_sample_count=self._failed,
            failures_by_reason=self._failures,
            judgement_count=self._judgements,
            abstentions_by_reason=self._abstentions,
            usage=self._usage,
            judges=[self._judges[key] for key in sorted(self._judges)],
            options=self._options,
            model_failures=[
                ModelFailures(model=model, reason=reason, judgement_count=count)
                for (model, reason), count in sorted(self._model_failures.items())
            ],
        )
        summary.notices.extend(_pooled_judges(summary.judges))
        self._rank(summary)
        if self._options.models_compared:
            self._compare_models(summary, statistics)
        summary.judge_comparisons.extend(self._comparisons.figures(statistics))
        for tags, figures in sorted(self._groups.items(), key=lambda one: _order(one[0])):
            figures.write(dict(tags), summary, statistics)
        summary.problems.extend(statistics.problems)
        return summary

    def _count(self, rows: Sequence[RunResult]) -> None:
        self._judgements += len(rows)
        kind = find_kind(self._kind)
        pooled = kind is not None and not kind.results.primary_measure
        by_measure: defaultdict[tuple[str, str], list[RunResult]] = defaultdict(list)
        for row in rows:
            if row.outcome == OUTCOME_ABSTAIN:
                self._abstentions[abstention_name(row.abstain_reason)] += 1
            if row.failure_reason:
                self._model_failures[row.model, reason_name(row.failure_reason)] += 1
            by_measure[row.model, row.measure].append(row)
            if pooled:
                by_measure[row.model, ""].append(row)
        for key, some in by_measure.items():
            self._sums[key].add(some)
        if self._options.models_compared and kind is not None:
            ranking = {
                key: some for key, some in by_measure.items() if pooled or kind.results.may_rank(key[1])
            }
            self._means.add(self._samples, ranking)

    def _note_judge(self, answer: JudgeAnswer) -> None:
        setup = setup_of(answer)
        figures = self._judges.get(setup)
        if figures is None:
            fields = {**setup._asdict(), "prompts": dict(setup.prompts)}
            figures = self._judges[setup] = JudgeFigures(**fields)
        figures.judgement_count += 1
        figures.abstention_count += answer.abstained

    def _grouped(self, sample: RunSample) -> dict[Tags, list[Any]]:
        grouped: defaultdict[Tags, list[Any]] = defaultdict(list)
        kind, model_groups = self._kinds[self._kind], self._options.model_groups
        for tags, part in kind.parts(sample):
            grouped[()].append(part)
            model = kind.model_of(part)
            if model_groups and model is not None:
                tags = {MODEL_GROUP: model_groups.get(model, ""), **tags}
            for grouping in self._options.groupings:
                names = dict.fromkeys(grouping.tags)
                grouped[tuple((name, tags.get(name, "")) for name in names)].append(part)
        return grouped

    def _compare_models(self, summary: Summary, statistics: Statistics) -> None:
        models = ranked_models(summary.leaderboard)
        if len(models) < 2:
            return
        try:
            request = self._means.request(models, summary.leaderboard_measure, self._options.seed)
        except ValueError as error:
            statistics.note(str(error))
            return
        response = statistics.alignment("RankSystems", request)
        if response is not None:
            add_comparisons(summary, response, models)

    def _rank(self, summary: Summary) -> None:
        if not self._kind:
            return
        sums = [some.sums(model, measure) for (model, measure), some in self._sums.items()]
        summary.leaderboard_measure = primary_measure(self._kind, (one.measure for one in sums))
        minimum = self._options.minimum_coverage
        summary.leaderboard.extend(leaderboard(sums, self._kind, minimum_coverage=minimum))


def _pooled_judges(judges: Iterable[JudgeFigures]) -> Iterator[str]:
    """A sentence for each judge whose judgements come from several versions, models or prompts.

    Answers without provenance, for example of a judge that failed, have no version.
    """
    by_judge: defaultdict[tuple[str, str], list[JudgeFigures]] = defaultdict(list)
    for one in judges:
        by_judge[one.role, one.judge].append(one)
    for (role, judge), some in by_judge.items():
        facts = {
            "versions": {f"{one.name} {one.version}".strip() for one in some if one.version},
            "models": {one.model for one in some if one.model},
            "prompts": {str(sorted(one.prompts.items())) for one in some if one.prompts},
        }
        changed = [
            f"{len(values)} {fact}" + ("" if fact == "prompts" else f" ({', '.join(sorted(values))})")
            for fact, values in facts.items()
            if len(values) > 1
        ]
        if changed:
            named = f"the judge {judge!r} of the role {role!r}"
            yield f"{named} answered with {' and '.join(changed)}; figures pool them"


def _failure(sample: RunSample) -> str:
    known = ErrorReason.DESCRIPTOR.values_by_number.get(sample.error.reason)
    if known is None or not sample.error.reason:
        return status_name(sample.error.code)
    return str(known.name).removeprefix("ERROR_REASON_")


def _order(tags: Tags) -> tuple[Any, ...]:
    """All samples first; then by the names of the tags; numbers by size, other values by name."""
    names = tuple(name for name, _ in tags)
    return len(tags), names, tuple(_rank_of(value) for _, value in tags)


def _rank_of(value: str) -> tuple[bool, float, str]:
    return (False, float(value), "") if value.isdecimal() else (True, 0.0, value)
