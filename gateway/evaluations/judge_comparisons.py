"""Shadows compared with the judges that they shadow: agreement, differing verdicts, cost and latency."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from google.protobuf.duration_pb2 import Duration

from dramaturg.api.alignment.v1.agreement_pb2 import AnnotatedItem, Annotation, MeasureAgreementRequest
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_UNSPECIFIED,
    OUTCOME_ABSTAIN,
    OUTCOME_FAIL,
    OUTCOME_PASS,
    AbstainReason,
    Verdict,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment, ShadowAssessment
from dramaturg.api.evaluation.v1.shadows_pb2 import ShadowJudgement
from dramaturg.api.evaluation.v1.summary_pb2 import (
    ComparedJudge,
    JudgeComparison,
    JudgeComparisonFigures,
    JudgeFlip,
)
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import FindChallengingTurnResponse
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PREFERENCE_ABSTAIN,
    PREFERENCE_UNSPECIFIED,
    ComparePairResponse,
)
from dramaturg.api.judging.v1.rating_judge_service_pb2 import Rating
from dramaturg.judge.provenance import add_usage
from dramaturg.kinds.texts import score_of
from dramaturg.results.means import SumAccumulator, estimate_of, mean_of_sums
from dramaturg.results.names import abstention_name, outcome_name, preference_name, shadow_miss_name
from gateway.evaluations.statistics import Statistics

MAX_FLIPS = 200
"""The most differing verdicts that a comparison lists."""
MAX_PAIRS = 100
"""The most pairs of judges that are compared."""
MAX_ITEMS = 200_000
"""The most items of a request to AlignmentService."""
_TASKS = "task"

_Key: TypeAlias = tuple[str, str, str]
"""The role, the judge or panel, and its shadow."""
_Assessed: TypeAlias = CandidateAssessment | ShadowAssessment
Judged: TypeAlias = ComparePairResponse | Rating | FindChallengingTurnResponse
"""A judgement of an item that is no candidate."""


class ComparedItem(NamedTuple):
    """One candidate or text with the assessments of its judges and shadows."""

    task: tuple[str, str]
    """The id and the goal of the task."""
    candidate_id: str
    model: str
    verdicts: Sequence[Verdict]
    """The verdicts of the evaluation, which are those of a panel."""
    assessments: Sequence[CandidateAssessment]
    shadows: Sequence[ShadowAssessment]
    scales: Mapping[str, CriterionScale]
    """The scales of criteria that are scored."""


class ComparedJudgement(NamedTuple):
    """One item that is no candidate, as a judge and its shadow judged it."""

    task: object
    """Groups the items that are not independent."""
    candidate_id: str
    model: str
    criterion: str
    first: Judged
    """The judgement of the judge."""
    shadow: ShadowJudgement


class _Answer(NamedTuple):
    label: str
    """The judgement as text. Empty: an abstention."""
    reason: AbstainReason.ValueType
    usage: Usage


class JudgeComparisons:
    """Compares each shadow with the judge or panel that it shadows."""

    def __init__(self) -> None:
        self._pairs: dict[_Key, _Pair] = {}
        self._left_out = False

    def add(
        self,
        sample: RunSample,
        items: Iterable[ComparedItem],
        judgements: Iterable[ComparedJudgement] = (),
    ) -> None:
        """Adds the items of a sample: candidates and texts, and others."""
        for item in items:
            for shadow in item.shadows:
                if (pair := self._pair(shadow)) is not None:
                    pair.add(sample, item, shadow)
        for one in judgements:
            if (pair := self._pair(one.shadow)) is not None:
                pair.add_judgement(sample, one)

    def _pair(self, shadow: ShadowAssessment | ShadowJudgement) -> _Pair | None:
        """The pair of a shadow; None where there are too many."""
        key = shadow.role, shadow.shadow_of, shadow.judge
        pair = self._pairs.get(key)
        if pair is None:
            if len(self._pairs) >= MAX_PAIRS:
                self._left_out = True
                return None
            pair = self._pairs[key] = _Pair()
        return pair

    def figures(self, statistics: Statistics) -> Sequence[JudgeComparison]:
        """The comparisons, by role and names."""
        if self._left_out:
            statistics.note(f"more than {MAX_PAIRS} pairs of judges: the others are not compared")
        made = []
        for (role, first, second), pair in sorted(self._pairs.items()):
            comparison = pair.comparison()
            comparison.role, comparison.first_judge, comparison.second_judge = role, first, second
            _add_kappas(comparison, pair.labels, statistics)
            made.append(comparison)
        return made


class _Rate:
    """A share of verdicts, clustered by task."""

    def __init__(self) -> None:
        self._tasks: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])

    def add(self, task: int, *, counted: bool) -> None:
        sums = self._tasks[task]
        sums[0] += 1
        sums[1] += counted

    def estimate(self) -> Estimate:
        sums = SumAccumulator()
        for count, total in self._tasks.values():
            sums.add_total(count, total)
        return estimate_of(mean_of_sums(sums.sums("", ""), 0.0, 1.0), sums.judged, cluster=_TASKS)


class _Verdicts:
    """The verdicts by one criterion that neither judge abstained from."""

    def __init__(self) -> None:
        self.judged = self.pass_to_fail = self.fail_to_pass = 0
        self.agreement, self.first, self.second = _Rate(), _Rate(), _Rate()

    def add(self, task: int, outcomes: tuple[int, int], *, equal: bool) -> None:
        """Adds two verdicts. The outcomes of answers that are no verdicts are 0."""
        self.judged += 1
        self.agreement.add(task, counted=equal)
        self.pass_to_fail += outcomes == (OUTCOME_PASS, OUTCOME_FAIL)
        self.fail_to_pass += outcomes == (OUTCOME_FAIL, OUTCOME_PASS)
        for rate, outcome in zip((self.first, self.second), outcomes, strict=True):
            if outcome in (OUTCOME_PASS, OUTCOME_FAIL):
                rate.add(task, counted=outcome == OUTCOME_PASS)

    def figures(self, criterion: str) -> JudgeComparisonFigures:
        return JudgeComparisonFigures(
            criterion=criterion,
            judged_count=self.judged,
            agreement=self.agreement.estimate(),
            pass_to_fail_count=self.pass_to_fail,
            fail_to_pass_count=self.fail_to_pass,
            first_pass_rate=self.first.estimate(),
            second_pass_rate=self.second.estimate(),
        )


class _Side:
    """What one judge took."""

    def __init__(self) -> None:
        self.made = ComparedJudge()
        self._latencies = 0
        self._seconds = 0.0

    def add(self, assessed: _Assessed) -> None:
        for verdict in assessed.assessment.verdicts:
            if verdict.outcome == OUTCOME_ABSTAIN:
                self._note_abstention(verdict.abstain_reason)
        latency = assessed.latency if assessed.HasField("latency") else None
        self._note_call(assessed.assessment.provenance.usage, latency)

    def add_answer(self, answer: _Answer, latency: Duration | None) -> None:
        if not answer.label:
            self._note_abstention(answer.reason)
        self._note_call(answer.usage, latency)

    def _note_abstention(self, reason: AbstainReason.ValueType) -> None:
        self.made.abstentions_by_reason[abstention_name(reason)] += 1

    def _note_call(self, usage: Usage, latency: Duration | None) -> None:
        made = self.made
        made.assessment_count += 1
        made.usage.CopyFrom(add_usage(made.usage, usage))
        if latency is not None:
            seconds = latency.ToNanoseconds() / 1e9
            self._latencies += 1
            self._seconds += seconds
            made.mean_latency_seconds = self._seconds / self._latencies
            made.largest_latency_seconds = max(made.largest_latency_seconds, seconds)


class _Pair:
    def __init__(self) -> None:
        self.labels: Counter[tuple[str, str, str]] = Counter()
        """The pairs of labels without an order by criterion."""
        self._items = self._flip_count = 0
        self._unseen: Counter[str] = Counter()
        self._verdicts: defaultdict[str, _Verdicts] = defaultdict(_Verdicts)
        self._flips: list[JudgeFlip] = []
        self._first, self._second = _Side(), _Side()

    def add(self, sample: RunSample, item: ComparedItem, second: ShadowAssessment) -> None:
        """Adds an item with the assessment of the shadow."""
        self._items += 1
        if not second.HasField("assessment"):
            self._unseen[shadow_miss_name(second.miss)] += 1
            return
        role, judge = second.role, second.shadow_of
        firsts = [one for one in item.assessments if one.role == role and judge in (one.judge, one.panel)]
        for one in firsts:
            self._first.add(one)
        self._second.add(second)
        given = {one.criterion: one for assessed in firsts for one in assessed.assessment.verdicts}
        if firsts and firsts[0].judge != judge:  # a panel
            given = {one.criterion: one for one in item.verdicts if one.criterion in given}
        for verdict in second.assessment.verdicts:
            before = given.get(verdict.criterion)
            if before is not None and OUTCOME_ABSTAIN not in (before.outcome, verdict.outcome):
                self._compare(sample, item, before, verdict)

    def add_judgement(self, sample: RunSample, one: ComparedJudgement) -> None:
        """Adds an item that is no candidate."""
        self._items += 1
        second = one.shadow
        member = second.WhichOneof("judgement")
        if member is None:
            self._unseen[shadow_miss_name(second.miss)] += 1
            return
        answers = _answer(one.first), _answer(getattr(second, member))
        self._first.add_answer(answers[0], second.judge_latency if second.HasField("judge_latency") else None)
        self._second.add_answer(answers[1], second.latency if second.HasField("latency") else None)
        if not all(answer.label for answer in answers):
            return
        labels = answers[0].label, answers[1].label
        self._count(hash(one.task), one.criterion, labels, nominal=member == "comparison")
        if labels[0] != labels[1]:
            self._flip(sample, one, one.criterion, labels)

    def _compare(self, sample: RunSample, item: ComparedItem, first: Verdict, second: Verdict) -> None:
        scale = item.scales.get(first.criterion)
        labels = _label(first, scale), _label(second, scale)
        outcomes = first.outcome, second.outcome
        self._count(hash(item.task), first.criterion, labels, outcomes, nominal=scale is None)
        if labels[0] != labels[1]:
            self._flip(sample, item, first.criterion, labels)

    def _count(
        self,
        task: int,
        criterion: str,
        labels: tuple[str, str],
        outcomes: tuple[int, int] = (0, 0),
        *,
        nominal: bool,
    ) -> None:
        for name in (criterion, ""):
            self._verdicts[name].add(task, outcomes, equal=labels[0] == labels[1])
        if nominal:
            self.labels[criterion, *labels] += 1

    def _flip(
        self,
        sample: RunSample,
        item: ComparedItem | ComparedJudgement,
        criterion: str,
        labels: tuple[str, str],
    ) -> None:
        self._flip_count += 1
        if len(self._flips) < MAX_FLIPS:
            self._flips.append(
                JudgeFlip(
                    sample_index=sample.index,
                    sample_id=sample.sample_id,
                    candidate_id=item.candidate_id,
                    model=item.model,
                    criterion=criterion,
                    first=labels[0],
                    second=labels[1],
                )
            )

    def comparison(self) -> JudgeComparison:
        order = sorted(self._verdicts, key=lambda criterion: (not criterion, criterion))
        return JudgeComparison(
            item_count=self._items,
            unseen_by_reason=self._unseen,
            figures=[self._verdicts[criterion].figures(criterion) for criterion in order],
            flip_count=self._flip_count,
            flips=self._flips,
            first=self._first.made,
            second=self._second.made,
        )


def _label(verdict: Verdict, scale: CriterionScale | None) -> str:
    if scale is None:
        return outcome_name(verdict.outcome)
    score = score_of(verdict, scale)
    return outcome_name(verdict.outcome) if score is None else f"{score:.6g}"


def _answer(judged: Judged) -> _Answer:
    usage = judged.provenance.usage
    if isinstance(judged, ComparePairResponse):
        if judged.preference in (PREFERENCE_ABSTAIN, PREFERENCE_UNSPECIFIED):
            reasons = (vote.abstain_reason for vote in judged.votes)
            return _Answer("", next(reasons, ABSTAIN_REASON_UNSPECIFIED), usage)
        return _Answer(preference_name(judged.preference), ABSTAIN_REASON_UNSPECIFIED, usage)
    if isinstance(judged, Rating):
        label = f"{judged.value:.6g}" if judged.HasField("value") else ""
    else:
        label = str(judged.turn) if judged.HasField("turn") else ""
    return _Answer(label, judged.abstain_reason, usage)


def _add_kappas(
    comparison: JudgeComparison, labels: Mapping[tuple[str, str, str], int], statistics: Statistics
) -> None:
    """Adds Cohen's kappa of all criteria and of each."""
    total = sum(labels.values())
    if not total:
        return
    if total > MAX_ITEMS:
        statistics.note(f"more than {MAX_ITEMS} verdicts of two judges: their kappa is not computed")
        return
    request = _agreement_request(labels)
    response = statistics.alignment("MeasureAgreement", request)
    if response is None:
        return
    kappas = {one.group: one.pairs[0].cohen_kappa for one in response.groups if one.pairs}
    for figures in comparison.figures:
        if (kappa := kappas.get(figures.criterion)) is not None:
            figures.cohen_kappa.CopyFrom(kappa)


def _agreement_request(labels: Mapping[tuple[str, str, str], int]) -> MeasureAgreementRequest:
    def items() -> Iterator[AnnotatedItem]:
        for (criterion, first, second), count in labels.items():
            item = AnnotatedItem(
                tags={"criterion": criterion},
                annotations=[
                    Annotation(annotator="first", labels=[first]),
                    Annotation(annotator="second", labels=[second]),
                ],
            )
            for _ in range(count):
                yield item

    return MeasureAgreementRequest(items=items(), group_tag="criterion")
