"""Figures of verdicts, of panels of judges, and of the order in which texts are presented."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.common.v1.verdict_pb2 import (
    OUTCOME_ABSTAIN,
    OUTCOME_FAIL,
    OUTCOME_PASS,
    FindingKind,
    Verdict,
)
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.api.evaluation.v1.summary_pb2 import (
    FindingFigures,
    PairMethodFigures,
    PanelFigures,
    RatingFigures,
    ReplyPairFigures,
    ScoreFigures,
    VerdictFigures,
)
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale
from dramaturg.api.judging.v1.rating_judge_service_pb2 import Rating
from dramaturg.kinds.texts import score_of
from dramaturg.results.means import SumAccumulator, estimate_of, mean_of_sums
from dramaturg.results.names import abstention_name, severity_name

TOPIC = "topic"
"""The tag that verdicts have by themselves: the task's topic."""

Key = tuple[str | None, str]
"""The model, None for all, and the criterion, empty for all."""


@dataclass
class RepeatCounter:
    """Counts how far the repeats of judges agree."""

    count: int = 0
    total: float = 0.0

    def add(self, judgement: Verdict | Rating | pb.ComparePairResponse) -> None:
        """Adds a judgement, which counts if repeats were compared for it."""
        if judgement.HasField("measured_confidence"):
            self.count += 1
            self.total += judgement.measured_confidence

    def write(
        self, figures: VerdictFigures | ScoreFigures | RatingFigures | ReplyPairFigures | PairMethodFigures
    ) -> None:
        """Writes the figures."""
        figures.repeated_count = self.count
        if self.count:
            figures.repeat_agreement = self.total / self.count


@dataclass
class _Counts:
    passed: int = 0
    failed: int = 0
    abstentions: Counter[str] = field(default_factory=Counter)
    sums: SumAccumulator = field(default_factory=SumAccumulator)
    repeats: RepeatCounter = field(default_factory=RepeatCounter)


class VerdictCounter:
    """Counts verdicts that pass, fail or abstain, by model and criterion, sample by sample.

    Args:
        order: The criteria in the order of the figures; others follow by name.
    """

    def __init__(self, order: Sequence[str] = ()) -> None:
        self._order = order
        self._counts: defaultdict[Key, _Counts] = defaultdict(_Counts)

    def add(self, verdicts: Iterable[tuple[str, Verdict]]) -> None:
        """Adds the verdicts of one sample, each with the model that it is about."""
        values: defaultdict[Key, list[float]] = defaultdict(list)
        for model, verdict in verdicts:
            for key in _keys(model, verdict.criterion):
                counted = self._counts[key]
                counted.repeats.add(verdict)
                if verdict.outcome == OUTCOME_PASS:
                    counted.passed += 1
                    values[key].append(1.0)
                elif verdict.outcome == OUTCOME_FAIL:
                    counted.failed += 1
                    values[key].append(0.0)
                else:
                    counted.abstentions[abstention_name(verdict.abstain_reason)] += 1
        for key, some in values.items():
            self._counts[key].sums.add_values(some)

    def figures(self, tags: Mapping[str, str]) -> Iterator[VerdictFigures]:
        """The figures of a group: by model, all models last; by criterion, all criteria last."""
        for (model, criterion), counted in sorted(
            self._counts.items(), key=lambda one: _in_order(one[0], self._order)
        ):
            judged, abstained = counted.passed + counted.failed, counted.abstentions.total()
            total = judged + abstained
            figures = VerdictFigures(
                tags=tags,
                model=model or "",
                all_models=model is None,
                criterion=criterion,
                verdict_count=total,
                pass_count=counted.passed,
                fail_count=counted.failed,
                abstentions_by_reason=counted.abstentions,
                pass_rate=estimate_of(mean_of_sums(counted.sums.sums("", ""), 0.0, 1.0), total),
            )
            if total:
                figures.pass_rate_lowest = counted.passed / total
                figures.pass_rate_highest = (counted.passed + abstained) / total
            counted.repeats.write(figures)
            yield figures


def _keys(model: str, criterion: str) -> Sequence[Key]:
    """The figures that a verdict counts for."""
    return (model, criterion), (model, ""), (None, criterion), (None, "")


def _in_order(key: Key, order: Sequence[str]) -> tuple[bool, str, bool, int, str]:
    """The place of figures: all models last, all criteria last."""
    model, criterion = key
    place = order.index(criterion) if criterion in order else len(order)
    return model is None, model or "", not criterion, place, criterion


@dataclass
class _Counted:
    items: int = 0
    differing: int = 0
    scored: int = 0
    differences: float = 0.0


class PanelCounter:
    """Counts, by criterion, the candidates or texts on which judges differ."""

    def __init__(self) -> None:
        self._by_criterion: defaultdict[str, _Counted] = defaultdict(_Counted)

    def add(
        self, assessments: Iterable[CandidateAssessment], scales: Mapping[str, CriterionScale] | None = None
    ) -> None:
        """Counts the assessments of one candidate or text.

        Args:
            assessments: The assessments.
            scales: The scales of the criteria that have one.
        """
        scales = scales or {}
        given: defaultdict[str, list[float]] = defaultdict(list)
        for assessed in assessments:
            for verdict in assessed.assessment.verdicts:
                scale = scales.get(verdict.criterion)
                answer = float(verdict.outcome) if scale is None else score_of(verdict, scale)
                if verdict.outcome != OUTCOME_ABSTAIN and answer is not None:
                    given[verdict.criterion].append(answer)
        for criterion, answers in given.items():
            if len(answers) < 2:
                continue
            counted = self._by_criterion[criterion]
            counted.items += 1
            counted.differing += len(set(answers)) > 1
            if criterion in scales:
                counted.scored += 1
                counted.differences += max(answers) - min(answers)

    def figures(self, tags: Mapping[str, str]) -> Iterator[PanelFigures]:
        """The figures by criterion; none without panels."""
        for criterion, counted in sorted(self._by_criterion.items()):
            panel = PanelFigures(
                tags=tags,
                criterion=criterion,
                text_count=counted.items,
                differing_count=counted.differing,
                differing_share=counted.differing / counted.items,
            )
            if counted.scored:
                panel.mean_difference = counted.differences / counted.scored
            yield panel


class FindingCounter:
    """Counts the findings of verdicts that are no abstentions, by model and kind, output by output."""

    def __init__(self) -> None:
        self._outputs: Counter[str] = Counter()
        self._counts: defaultdict[tuple[str | None, FindingKind.ValueType], FindingFigures] = defaultdict(
            FindingFigures
        )

    def add(self, model: str, verdicts: Iterable[Verdict]) -> None:
        """Adds one output of a model."""
        self._outputs[model] += 1
        affected = set()
        for verdict in verdicts:
            if verdict.outcome == OUTCOME_ABSTAIN:
                continue
            for finding in verdict.findings:
                for key in ((model, finding.kind), (None, finding.kind)):
                    counted = self._counts[key]
                    counted.finding_count += 1
                    counted.affected_count += key not in affected
                    affected.add(key)
                    if finding.severity:
                        counted.count_by_severity[severity_name(finding.severity)] += 1

    def figures(self) -> Iterator[FindingFigures]:
        """The figures: by kind, all models last."""
        for (model, kind), counted in sorted(
            self._counts.items(), key=lambda one: (one[0][1], one[0][0] is None, one[0][0] or "")
        ):
            counted.model, counted.all_models, counted.kind = model or "", model is None, kind
            counted.output_count = self._outputs.total() if model is None else self._outputs[model]
            yield counted


class OrderEffect:
    """Counts ballots by the order of presentation."""

    def __init__(self) -> None:
        self.both = 0
        """The votes with a preference in both orders, ties included."""
        self.inconsistent = 0
        """Those of them that differ."""
        self.named = 0
        """The preferences for a text."""
        self.first_presented = 0
        """Those of them for the text presented first."""

    def add(self, ballots: Iterable[pb.Ballot]) -> None:
        """Adds the ballots of one vote."""
        found = {
            ballot.order: ballot.preference
            for ballot in ballots
            if ballot.preference not in (pb.PREFERENCE_UNSPECIFIED, pb.PREFERENCE_ABSTAIN)
        }
        if len(found) > 1:
            self.both += 1
            self.inconsistent += len(set(found.values())) > 1
        for order, preference in found.items():
            if preference == pb.PREFERENCE_TIE:
                continue
            swapped = order == pb.PRESENTATION_ORDER_SWAPPED
            self.named += 1
            self.first_presented += (preference == pb.PREFERENCE_SECOND) == swapped

    @property
    def inconsistent_share(self) -> float | None:
        """The share of votes in both orders that differ; None without such votes."""
        return self.inconsistent / self.both if self.both else None

    @property
    def first_presented_share(self) -> float | None:
        """The share of preferences for the text presented first; None without preferences."""
        return self.first_presented / self.named if self.named else None


class OrderRates:
    """The same shares with intervals clustered by item."""

    def __init__(self) -> None:
        self.inconsistent = SumAccumulator()
        """The votes in both orders: 1 if they differ."""
        self.first_presented = SumAccumulator()
        """The preferences: 1 if they are for the text presented first."""

    def add(self, votes: Iterable[Iterable[pb.Ballot]]) -> None:
        """Adds the ballots of each vote on one item."""
        item = OrderEffect()
        for ballots in votes:
            item.add(ballots)
        if item.both:
            self.inconsistent.add_total(item.both, item.inconsistent)
        if item.named:
            self.first_presented.add_total(item.named, item.first_presented)


def rate_of(sums: SumAccumulator) -> Estimate | None:
    """A share with its interval; None without any value."""
    if not sums.judged:
        return None
    return estimate_of(mean_of_sums(sums.sums("", ""), 0.0, 1.0), sums.judged)
