"""The kind ``scenarios`` (Choice-75, section 2.4): models write scenarios, and near-duplicates are found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dramaturg.api.common.v1.decision_pb2 import CHOICE_OPTION_1, CHOICE_OPTION_2, Choice
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_UNPARSABLE
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.run_pb2 import RunSample, RunSpec
from dramaturg.api.evaluation.v1.scenarios_pb2 import (
    ScenariosResult,
    WriteScenariosRequest,
    WriteScenariosResponse,
    WrittenScenario,
)
from dramaturg.api.evaluation.v1.summary_pb2 import ScenarioFigures, Summary
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    SCENARIO_FORM_HARD_VERB_PHRASE,
    SCENARIO_FORM_USER_PROFILE,
    SCENARIO_FORM_VERB_PHRASE,
    ScenarioForm,
    WriteScenarioRequest,
    WriteScenarioResponse,
)
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.authoring import repeats
from dramaturg.judge.provenance import total_usage
from dramaturg.judge.roles import AUTHOR, EMBEDDING
from dramaturg.kinds.scenarios import FORMS, SCENARIOS, TARGETS, is_usable
from dramaturg.results.means import SumAccumulator, estimate_of, mean_of_sums
from dramaturg.results.names import abstention_name
from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.threads import gather_all
from dramaturg.service.validation import check_distinct
from gateway.evaluations.calls import ask, embed_by, judge_options
from gateway.evaluations.checks import check_alone
from gateway.evaluations.failures import Failure, is_model_failure
from gateway.evaluations.kind import PlannedCalls, RunKind, text_length
from gateway.evaluations.scope import EvaluationContext
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.streams import Emit, Evaluation
from gateway.evaluations.summary import KindFigures, KindSummary
from gateway.judges.registry import Registry
from gateway.judges.selection import JudgeAssignment, check_selections, select_judges

MAX_REASONS = 100
"""The most reasons of unchecked briefs that are told apart. They are text."""
OTHER = "other"
"""The further reasons."""

Setup = tuple[str, str, str]
"""The model, the form and the targeted option; empty for both options."""
DEFAULT_COUNT = 4
"""The default number of scenarios for each model and option."""
DEFAULT_THRESHOLD = 0.9
"""The default cosine of near-duplicates."""

_ROLES = (AUTHOR, EMBEDDING)
NO_SERVICE = "no service of the role 'embedding' is registered"
"""The reason for which meanings are not compared, if there is no embedding service."""


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


class ScenariosKindSummary(KindSummary):
    figures_type = ScenarioCounts

    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], ScenariosResult]]:
        yield {**sample.scenarios.tags, **sample.tags}, sample.scenarios


class RequestedScenario(NamedTuple):
    """A scenario to write."""

    id: str
    model: str
    """The model, as named in the request. Empty: the author's default."""
    target: Choice.ValueType
    """CHOICE_OPTION_1 or CHOICE_OPTION_2."""
    repeat_index: int
    """Tells the scenarios of one model and option apart."""


@dataclass(frozen=True)
class ScenariosPlan:
    """A valid request, its author and its embedding service."""

    request: WriteScenariosRequest
    author: JudgeAssignment
    """The author; it calls the models."""
    embedder: JudgeAssignment | None
    """The embedding service. None: near-duplicates have equal words."""

    @property
    def form(self) -> ScenarioForm.ValueType:
        """The form; never unspecified."""
        return self.request.form or SCENARIO_FORM_VERB_PHRASE

    @property
    def threshold(self) -> float:
        """The cosine of near-duplicates."""
        request = self.request
        return request.duplicate_threshold if request.HasField("duplicate_threshold") else DEFAULT_THRESHOLD

    def scenarios(self) -> Sequence[RequestedScenario]:
        """All scenarios, by model, option and number."""
        request = self.request
        count = request.count or DEFAULT_COUNT
        targets = [request.target] if request.target else [CHOICE_OPTION_1, CHOICE_OPTION_2]
        numbers: Counter[int] = Counter()
        found = []
        for model in request.models or (request.options.model,):
            for target in targets:
                for index in range(count):
                    name = f"{TARGETS[target]}/{numbers[target]}"
                    numbers[target] += 1
                    # Repeats of the request are other scenarios than those of its first time.
                    repeat = request.options.repeat_index * count + index
                    found.append(RequestedScenario(name, model, target, repeat))
        return found

    def accepted(self) -> EvaluationAccepted:
        """The event that states the plan."""
        judges = [self.author, *([self.embedder] if self.embedder is not None else [])]
        return EvaluationAccepted(
            judges=[one.describe() for one in judges], assessment_count=len(self.scenarios())
        )


def plan_scenarios(request: WriteScenariosRequest, registry: Registry) -> ScenariosPlan:
    """Plans the scenarios of a request that is within the contract's limits.

    Args:
        request: The request.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN;
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    found = [
        *check_distinct("models", request.models),
        *_check_form(request),
        *check_selections(request.judges, _ROLES, registry.roles),
        *check_alone(request.judges, _ROLES),
    ]
    if found:
        raise invalid_fields(found)
    (author,) = select_judges(request.judges, (AUTHOR,), registry, "")
    selected = any(one.role == EMBEDDING.name for one in request.judges)
    served = selected or registry.default(EMBEDDING.name) is not None
    embedder = select_judges(request.judges, (EMBEDDING,), registry, "")[0] if served else None
    return ScenariosPlan(request, author, embedder)


def _check_form(request: WriteScenariosRequest) -> Iterator[Violation]:
    """Finds fields that the form or the target does not allow; the author would refuse each scenario."""
    if request.target and request.target not in TARGETS:
        yield Violation("target", "must be CHOICE_OPTION_1, CHOICE_OPTION_2 or absent")
    if request.form != SCENARIO_FORM_USER_PROFILE:
        for field in ("musts", "must_nots"):
            if getattr(request, field):
                yield Violation(field, "is only for SCENARIO_FORM_USER_PROFILE")
    for index, shown in enumerate(request.demonstrations):
        if shown.target not in TARGETS:
            path = f"demonstrations[{index}].target"
            yield Violation(path, "must be CHOICE_OPTION_1 or CHOICE_OPTION_2")
        if request.form == SCENARIO_FORM_HARD_VERB_PHRASE and not shown.base_scenario.strip():
            path = f"demonstrations[{index}].base_scenario"
            yield Violation(path, "is required for SCENARIO_FORM_HARD_VERB_PHRASE")


class ScenarioWriting(Evaluation[ScenariosPlan]):
    """Writes the scenarios of one brief. A scenario that is not written abstains; the others are kept."""

    response_type = WriteScenariosResponse

    async def work(self, emit: Emit) -> ScenariosResult:
        request = self._plan.request
        written = await gather_all([self._write(one, emit) for one in self._plan.scenarios()])
        result = ScenariosResult(
            brief=request.brief,
            id=request.id,
            form=self._plan.form,
            tags=request.tags,
            duplicate_threshold=self._plan.threshold,
        )
        await self._find_duplicates(written, result)
        result.scenarios.extend(written)
        result.usage.CopyFrom(total_usage(one.provenance.usage for one in written))
        return result

    async def _write(self, wanted: RequestedScenario, emit: Emit) -> WrittenScenario:
        request, assignment = self._plan.request, self._plan.author
        options = judge_options(assignment, request)
        options.model = wanted.model or assignment.model
        options.repeat_index = wanted.repeat_index
        asked = WriteScenarioRequest(
            brief=request.brief,
            target=wanted.target,
            form=self._plan.form,
            demonstrations=request.demonstrations,
            musts=request.musts,
            must_nots=request.must_nots,
            options=options,
        )
        stub = AuthoringServiceStub(assignment.judge.channel)
        answer = await ask(assignment, self._scope, stub.WriteScenario, asked, WriteScenarioResponse)
        written = WrittenScenario(id=wanted.id, model=wanted.model, target=wanted.target)
        if isinstance(answer, Failure):
            written.abstain_reason = answer.reason
            written.failure = f"the author {assignment.judge.name!r} {answer.explanation}"
        else:
            _normalize(written, answer)
            written.provenance.registered_name = assignment.judge.name
            if is_model_failure(written.abstain_reason, abstains=request.unusable_outputs_abstain):
                written.failure_reason = written.abstain_reason
                written.ClearField("abstain_reason")
        emit(scenario=written)
        return written

    async def _find_duplicates(self, written: Sequence[WrittenScenario], result: ScenariosResult) -> None:
        """Marks near-duplicates of earlier scenarios, and states by what they were found."""
        present = [one for one in written if one.scenario]
        texts = [one.scenario for one in present]
        vectors = await self._embed(texts, result)
        for one, earlier in zip(present, repeats(texts, vectors, result.duplicate_threshold), strict=True):
            if earlier is not None:
                one.duplicate_of = present[earlier].id

    async def _embed(
        self, texts: Sequence[str], result: ScenariosResult
    ) -> Sequence[Sequence[float] | None] | None:
        assignment = self._plan.embedder
        if assignment is None:
            result.duplicates_unchecked = NO_SERVICE
            return None
        if len(texts) < 2:
            return None
        found = await embed_by(assignment, self._scope, texts)
        if found.failure:
            result.duplicates_unchecked = f"the embedding service {assignment.judge.name!r} {found.failure}"
        if any(found.vectors):
            result.embedding_service, result.embedding_model = assignment.judge.name, found.model
        return found.vectors


def _normalize(written: WrittenScenario, answer: WriteScenarioResponse) -> None:
    """Copies the scenario, or the reason for its absence. An answer with neither abstains as UNPARSABLE."""
    written.provenance.CopyFrom(answer.provenance)
    if answer.scenario.strip() and not answer.abstain_reason:
        written.scenario = answer.scenario
        written.base_scenario = answer.base_scenario
        written.leaks_option = answer.leaks_option
        return
    written.abstain_reason = answer.abstain_reason or ABSTAIN_REASON_UNPARSABLE
    written.failure = answer.failure or "the author answered without a scenario"


class ScenariosKind(RunKind):
    method = "WriteScenarios"
    request_type = WriteScenariosRequest
    planner = staticmethod(plan_scenarios)
    evaluation = ScenarioWriting
    items = ("models",)
    name = "scenarios"
    results = SCENARIOS
    summary = ScenariosKindSummary()
    roles = (AUTHOR, EMBEDDING)

    def planned_calls(
        self, request: WriteScenariosRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        del spec
        plan = plan_scenarios(request, context.registry)
        shown = text_length(request.brief) + sum(map(text_length, request.demonstrations))
        shown += sum(map(len, (*request.musts, *request.must_nots)))
        prompts = {
            SCENARIO_FORM_HARD_VERB_PHRASE: ("write_scenario", "write_scenario_behind"),
            SCENARIO_FORM_USER_PROFILE: ("write_profile",),
        }.get(plan.form, ("write_scenario",))
        return [
            PlannedCalls(plan.author.judge, one.model or plan.author.model, 1, shown, prompt)
            for one in plan.scenarios()
            for prompt in prompts
        ]

    def apply_spec(self, request: WriteScenariosRequest, spec: RunSpec, repeat_offset: int = 0) -> None:
        sampled = request.options.HasField("sampling") or spec.options.HasField("sampling")
        super().apply_spec(request, spec, repeat_offset)
        if not sampled and request.options.HasField("sampling"):
            # A seed alone keeps the author's temperature, with which scenarios differ.
            request.options.sampling.ClearField("temperature")

    def _apply_options(self, request: WriteScenariosRequest, spec: RunSpec) -> None:
        options = spec.scenarios
        request.form = options.form or request.form
        request.count = options.count or request.count
        if options.HasField("duplicate_threshold"):
            request.duplicate_threshold = options.duplicate_threshold
        if options.demonstrations:
            request.ClearField("demonstrations")
            request.demonstrations.extend(options.demonstrations)

    def model_provenances(self, result: ScenariosResult) -> Iterator[tuple[str, Provenance]]:
        return ((one.model, one.provenance) for one in result.scenarios)


KIND = ScenariosKind()
