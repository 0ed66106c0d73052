"""The kind ``texts``: each judge of the panel judges all texts of a task by the rubric."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.script_pb2 import Script, Step
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_UNPARSABLE,
    OUTCOME_SCORED,
    OUTCOME_UNSPECIFIED,
    Verdict,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.run_pb2 import RunSample, RunSpec
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.summary_pb2 import ScoreFigures, Summary
from dramaturg.api.evaluation.v1.texts_pb2 import (
    EvaluatedText,
    EvaluateTextsRequest,
    EvaluateTextsResponse,
    TextResult,
    TextsResult,
)
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, CriterionScale, JudgeCandidate
from dramaturg.judge.conversations import transcript
from dramaturg.judge.provenance import total_usage
from dramaturg.judge.roles import RUBRIC_JUDGE, RULE_JUDGE, JudgeRole, Role
from dramaturg.judge.rules import check_rubric, encode_criterion
from dramaturg.judge.steps import is_blank
from dramaturg.judge.verdicts import abstained, failed, scored
from dramaturg.kinds.texts import TEXTS, score_of
from dramaturg.results.means import SumAccumulator, estimate_of, mean_of_sums
from dramaturg.results.names import abstention_name
from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.validation import check_distinct
from gateway.evaluations.assessments import AskedCriteria, Assessed, Assessor
from gateway.evaluations.judge_comparisons import ComparedItem
from gateway.evaluations.kind import PlannedCalls, RunKind, text_length
from gateway.evaluations.panels import decide
from gateway.evaluations.scope import EvaluationContext, EvaluationScope
from gateway.evaluations.shadows import ShadowCalls
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.streams import Emit, Evaluation, Judgement
from gateway.evaluations.summary import KindFigures, KindSummary
from gateway.evaluations.verdict_figures import (
    TOPIC,
    FindingCounter,
    PanelCounter,
    RepeatCounter,
    VerdictCounter,
)
from gateway.evaluations.verdict_normalization import requested_criteria
from gateway.judges.registry import Registry
from gateway.judges.selection import (
    JudgeAssignment,
    Shadow,
    check_selections,
    counted_shadows,
    select_judges,
    select_shadows,
)

ROLES = (RUBRIC_JUDGE, RULE_JUDGE)
"""The roles of judges of texts."""
_EMPTY = "The text has no content."


class JudgedText(NamedTuple):
    """One text with the scales of the rubric."""

    text: TextResult
    scales: Mapping[str, CriterionScale]


def _scales(result: TextsResult) -> Mapping[str, CriterionScale]:
    return {one.id: one.scale for one in result.criteria if one.HasField("scale")}


@dataclass
class _Scores:
    verdicts: int = 0
    abstentions: Counter[str] = field(default_factory=Counter)
    sums: SumAccumulator = field(default_factory=SumAccumulator)
    repeats: RepeatCounter = field(default_factory=RepeatCounter)


ScoreKey = tuple[str | None, str, int, int]
"""The model, None for all; the criterion; the lowest and the highest score of its scale."""


class TextsFigures(KindFigures):
    """Verdicts and scores by model and criterion, and the agreement of panels."""

    def __init__(self) -> None:
        self._texts = 0
        self._verdicts = VerdictCounter()
        self._scores: defaultdict[ScoreKey, _Scores] = defaultdict(_Scores)
        self._panels = PanelCounter()
        self._findings = FindingCounter()

    def add(self, parts: Sequence[JudgedText]) -> None:
        self._texts += len(parts)
        self._verdicts.add(
            (part.text.model, verdict)
            for part in parts
            for verdict in part.text.verdicts
            if verdict.criterion not in part.scales
        )
        values: defaultdict[ScoreKey, list[float]] = defaultdict(list)
        for part in parts:
            for verdict in part.text.verdicts:
                scale = part.scales.get(verdict.criterion)
                if scale is None:
                    continue
                for model in (part.text.model, None):
                    key = model, verdict.criterion, scale.lowest, scale.highest
                    counted = self._scores[key]
                    counted.verdicts += 1
                    counted.repeats.add(verdict)
                    score = score_of(verdict, scale)
                    if score is not None:
                        values[key].append(score)
                    else:
                        reason = verdict.abstain_reason or ABSTAIN_REASON_UNPARSABLE
                        counted.abstentions[abstention_name(reason)] += 1
            self._panels.add(part.text.assessments, part.scales)
            self._findings.add(part.text.model, part.text.verdicts)
        for key, some in values.items():
            self._scores[key].sums.add_values(some)

    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        del statistics
        written = summary.texts
        if not tags:
            written.text_count = self._texts
            written.findings.extend(self._findings.figures())
        written.verdicts.extend(self._verdicts.figures(tags))
        written.scores.extend(self._score_figures(tags))
        written.panels.extend(self._panels.figures(tags))

    def _score_figures(self, tags: Mapping[str, str]) -> Iterator[ScoreFigures]:
        for (model, criterion, lowest, highest), counted in sorted(
            self._scores.items(), key=lambda one: (one[0][0] is None, one[0][0] or "", one[0][1:])
        ):
            sums, abstained = counted.sums, counted.abstentions.total()
            mean = mean_of_sums(sums.sums("", ""), lowest, highest)
            figures = ScoreFigures(
                tags=tags,
                model=model or "",
                all_models=model is None,
                criterion=criterion,
                lowest=lowest,
                highest=highest,
                verdict_count=counted.verdicts,
                score_count=sums.judged,
                abstentions_by_reason=counted.abstentions,
                mean=estimate_of(mean, counted.verdicts, (lowest, highest)),
                mean_lowest=(sums.total + abstained * lowest) / counted.verdicts,
                mean_highest=(sums.total + abstained * highest) / counted.verdicts,
            )
            counted.repeats.write(figures)
            yield figures


class TextsKindSummary(KindSummary):
    figures_type = TextsFigures

    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], JudgedText]]:
        result = sample.texts
        scales = _scales(result)
        for text in result.texts:
            yield {TOPIC: result.task.topic, **sample.tags}, JudgedText(text, scales)

    def compared_items(self, sample: RunSample) -> Iterator[ComparedItem]:
        result = sample.texts
        scales = _scales(result)
        for one in result.texts:
            yield ComparedItem(
                task=(result.task.id, result.task.goal),
                candidate_id=one.text_id,
                model=one.model,
                verdicts=one.verdicts,
                assessments=one.assessments,
                shadows=one.shadows,
                scales=scales,
            )


@dataclass(frozen=True)
class TextsPlan:
    """A valid request and its judges."""

    request: EvaluateTextsRequest
    assignments: tuple[JudgeAssignment, ...]
    """The judges, as selected."""
    shadows: tuple[Shadow, ...] = ()
    """The shadows of the judges."""

    @cached_property
    def criteria(self) -> Mapping[str, Criterion]:
        """The criteria as judges get them, by id, in the order of the rubric."""
        return {one.id: encode_criterion(one) for one in self.request.criteria}

    def criteria_of(self, role: Role) -> Mapping[str, Criterion]:
        """The criteria that judges of a role get: those with a rule, or all others."""
        by_rule = role == RULE_JUDGE
        return {name: one for name, one in self.criteria.items() if one.HasField("rule") == by_rule}

    @cached_property
    def scales(self) -> Mapping[str, CriterionScale]:
        """The scales of the criteria that are scored."""
        return {one.id: one.scale for one in self.request.criteria if one.HasField("scale")}

    @cached_property
    def judged(self) -> Sequence[EvaluatedText]:
        """The texts that judges get: those with content."""
        return [one for one in self.request.texts if one.HasField("conversation") or not is_blank(one.text)]

    def accepted(self) -> EvaluationAccepted:
        """The event that states the plan."""
        return EvaluationAccepted(
            judges=[assignment.describe() for assignment in self.assignments],
            assessment_count=len(self.assignments) * len(self.judged),
        )


def plan_texts(request: EvaluateTextsRequest, registry: Registry) -> TextsPlan:
    """Plans the evaluation of a request that is within the contract's limits.

    Args:
        request: The request.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN;
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    violations = [
        *check_distinct("texts", [one.id for one in request.texts]),
        *check_rubric(request.criteria),
        *(
            Violation(f"texts[{index}].text", "must be empty beside a conversation")
            for index, one in enumerate(request.texts)
            if one.text and one.HasField("conversation")
        ),
        *check_selections(request.judges, ROLES, registry.roles),
    ]
    if violations:
        raise invalid_fields(violations)
    ruled = [one.HasField("rule") for one in request.criteria]
    wanted = tuple(role for role in ROLES if (role == RULE_JUDGE) in ruled)
    assignments = select_judges(request.judges, wanted, registry, request.options.model)
    return TextsPlan(request, assignments, select_shadows(request.shadows, assignments, registry))


class TextsEvaluation(Evaluation[TextsPlan]):
    """The evaluation of the texts of one task.

    A judge that fails makes its own verdicts abstain and does not affect others. Judges do not learn which
    model wrote a text.
    """

    response_type = EvaluateTextsResponse

    def __init__(self, plan: TextsPlan, context: EvaluationContext, scope: EvaluationScope) -> None:
        super().__init__(plan, context, scope)
        self._shadows = ShadowCalls(plan.shadows, scope)

    @staticmethod
    def judgements(result: TextsResult, rows: Iterable[RunResult]) -> Iterator[Judgement]:
        """The verdicts of every judge; those of panels are derived from them and not counted."""
        del rows
        for text in result.texts:
            for assessed in text.assessments:
                for verdict in assessed.assessment.verdicts:
                    outcome = verdict.outcome if verdict.outcome != OUTCOME_SCORED else OUTCOME_UNSPECIFIED
                    yield Judgement(assessed.role, assessed.judge, outcome, verdict.abstain_reason)

    async def work(self, emit: Emit) -> TextsResult:
        """See ``Evaluation.work``."""
        return await self._shadows.beside(
            self._evaluate(emit),
            self._plan.request.shadow_wait.ToNanoseconds() / 1e9,
            targets=lambda result: {text.text_id: text.shadows for text in result.texts if text.assessments},
        )

    async def _evaluate(self, emit: Emit) -> TextsResult:
        request = self._plan.request
        candidates = [
            JudgeCandidate(
                id=one.id,
                text=one.text,
                reading=verdict_pb2.READING_TEXT,
                context=one.context,
                conversation=one.conversation if one.HasField("conversation") else None,
            )
            for one in self._plan.judged
        ]
        assessed: Mapping[str, Assessed] = {}
        if candidates:
            assessor = Assessor(request.task, candidates, request, self._context.directory)
            self._shadows.start(
                [one.id for one in candidates],
                lambda shadow, scope, emit: assessor.assess(
                    shadow, scope, self._ask, self._find_reference, emit
                ),
            )
            assessed = await assessor.assess_all(
                self._plan.assignments, self._scope, self._ask, self._find_reference, emit
            )
        return TextsResult(
            task=request.task,
            tags=request.tags,
            texts=[self._result(one, assessed.get(one.id)) for one in request.texts],
            criteria=request.criteria,
            usage=total_usage(one.assessment.provenance.usage for row in assessed.values() for _, one in row),
        )

    def _ask(self, role: JudgeRole, identity: Identity | None) -> AskedCriteria:
        criteria = self._plan.criteria_of(role)
        requested: Sequence[Criterion] | None = list(criteria.values())
        if identity is not None:
            known = requested_criteria([*criteria], identity)
            requested = [criteria[name] for name in known] or None
        units = {name: one.each for name, one in criteria.items() if one.each}
        return AskedCriteria([*criteria], requested, self._plan.scales, units)

    async def _find_reference(self, role: JudgeRole, identity: Identity | None) -> Script | None:
        del role, identity
        text = self._plan.request.reference
        return Script(steps=[Step(text=text)]) if text else None

    def _result(self, text: EvaluatedText, assessed: Assessed | None) -> TextResult:
        result = TextResult(text_id=text.id, model=text.model, text=text.text, context=text.context)
        if text.HasField("conversation"):
            result.text = transcript(text.conversation)
            result.conversation.CopyFrom(text.conversation)
        if assessed is None:
            if not self._plan.request.unusable_outputs_abstain:
                result.failure_reason = verdict_pb2.ABSTAIN_REASON_EMPTY
            result.verdicts.extend(self._empty(name) for name in self._plan.criteria)
        else:
            assessments = [one for _, one in assessed]
            result.verdicts.extend(
                decide(assessments, [*self._plan.criteria], [judge for judge, _ in assessed])
            )
            result.assessments.extend(assessments)
        return result

    def _empty(self, criterion: str) -> Verdict:
        """The verdict on a text without content."""
        if self._plan.request.unusable_outputs_abstain:
            return abstained(criterion, verdict_pb2.ABSTAIN_REASON_EMPTY, _EMPTY)
        scale = self._plan.scales.get(criterion)
        if scale is None:
            return failed(criterion, rationale=_EMPTY)
        return scored(criterion, scale.lowest, rationale=_EMPTY)


class TextsKind(RunKind):
    method = "EvaluateTexts"
    request_type = EvaluateTextsRequest
    planner = staticmethod(plan_texts)
    evaluation = TextsEvaluation
    items = ("texts",)
    name = "texts"
    results = TEXTS
    summary = TextsKindSummary()
    roles = ROLES

    def check_models(self, models: Sequence[str]) -> Iterator[Violation]:
        if models:
            yield Violation("models", "must be empty for texts: the row names the author of each text")
        yield from super().check_models(models)

    def check_spec(self, spec: RunSpec) -> Iterator[Violation]:
        for found in check_rubric(spec.texts.criteria):
            yield Violation(f"texts.{found.field}", found.description)

    def written_fields(self, spec: RunSpec) -> Sequence[str]:
        return ("criteria",) if spec.texts.criteria else ()

    def _apply_options(self, request: EvaluateTextsRequest, spec: RunSpec) -> None:
        if spec.texts.criteria:
            del request.criteria[:]
            request.criteria.extend(spec.texts.criteria)

    def planned_calls(
        self, request: EvaluateTextsRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        del spec
        plan = plan_texts(request, context.registry)
        shared = sum(map(text_length, (request.task, *plan.criteria.values()))) + len(request.reference)
        count, texts = len(plan.judged), sum(map(text_length, plan.judged))
        return [
            PlannedCalls(one.judge, one.model, count, texts + count * shared, assumption=one.assumption)
            for one in (*plan.assignments, *counted_shadows(plan.shadows))
        ]

    def model_provenances(self, result: TextsResult) -> Iterator[tuple[str, Provenance]]:
        for text in result.texts:
            for assessed in text.assessments:
                yield text.model, assessed.assessment.provenance


KIND = TextsKind()
