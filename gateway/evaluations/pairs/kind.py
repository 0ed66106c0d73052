"""The kind ``pairs`` (DRPE): compares two texts, by the roles first, then by all methods concurrently.

Model calls: one for the subjective roles, unless they are given or omitted, and one for all votes in each
order of presentation: two for one order, three for both (DRPE, section 4.2, counts two).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.alignment.v1.text_pb2 import ScoreTextRequest, ScoreTextResponse
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.pairs_pb2 import (
    EvaluatePairsRequest,
    EvaluatePairsResponse,
    PairComparison,
    PairResult,
    RolesKnown,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.api.judging.v1.pair_judge_service_pb2_grpc import PairJudgeServiceStub
from dramaturg.judge.length import longer_text
from dramaturg.judge.provenance import total_usage
from dramaturg.judge.role_sets import breach, role_set
from dramaturg.judge.roles import ALIGNMENT, PAIR_JUDGE, ROLES_FINDER
from dramaturg.kinds.pairs import PAIRS
from dramaturg.service.errors import Violation
from gateway.evaluations.calls import ask, judge_options
from gateway.evaluations.failures import Failure
from gateway.evaluations.kind import PlannedCalls, RunKind, text_length
from gateway.evaluations.pairs.plan import (
    BY_FIXED_ROLES,
    BY_ONE_JUDGE,
    PairsPlan,
    check_role_plan,
    plan_pairs,
)
from gateway.evaluations.pairs.roles import find_roles
from gateway.evaluations.pairs.summary import PairsKindSummary
from gateway.evaluations.repeats import combine_comparisons, repeated
from gateway.evaluations.scope import BatchWait, EvaluationContext, EvaluationScope
from gateway.evaluations.shadows import ShadowCalls
from gateway.evaluations.streams import Emit, Evaluation
from gateway.judges.selection import JudgeAssignment, counted_shadows


async def score_texts(plan: PairsPlan, scope: EvaluationScope) -> PairResult:
    """The metrics of a result: the score of the first text less that of the second, by metric.

    There is no reference for texts that are compared with each other. The source takes its place, so a metric
    tells how much of the source a text contains. A metric that is undefined for a text is missing.
    """
    request, result = plan.request, PairResult(text_metrics=plan.request.text_metrics)
    if plan.scorer is None:
        return result
    asked = ScoreTextRequest(metrics=request.text_metrics)
    for text in (request.first.text, request.second.text):
        asked.pairs.add(candidate=text, reference=request.source)
    stub = AlignmentServiceStub(plan.scorer.judge.channel)
    response = await ask(plan.scorer, scope, stub.ScoreText, asked, ScoreTextResponse)
    if isinstance(response, Failure):
        result.metrics_failure = f"the alignment service {response.explanation}"
        return result
    first, second = (one.scores for one in response.scores)
    for metric in request.text_metrics:
        if metric in first and metric in second:
            result.metric_differences[metric] = first[metric] - second[metric]
    return result


_ORDERS = {
    pb.PRESENTATION_ORDER_AS_GIVEN: (pb.PRESENTATION_ORDER_AS_GIVEN,),
    pb.PRESENTATION_ORDER_SWAPPED: (pb.PRESENTATION_ORDER_SWAPPED,),
}
_BOTH = (pb.PRESENTATION_ORDER_AS_GIVEN, pb.PRESENTATION_ORDER_SWAPPED)


async def compare_pair(
    assignment: JudgeAssignment,
    request: EvaluatePairsRequest,
    roles: Sequence[pb.Role],
    identity: Identity | None,
    scope: EvaluationScope,
) -> pb.ComparePairResponse:
    """Compares the two texts. A judge that fails, or breaks its contract, abstains in every role.

    Args:
        assignment: The judge.
        request: The texts. Their authors and the human preference are not passed on.
        roles: The roles that vote. Empty: one vote without a role.
        identity: The identity of the judge. None: unknown.
        scope: What the calls of the evaluation share.
    """
    question = pb.ComparePairRequest(
        source=request.source,
        instruction=request.instruction,
        first=request.first.text,
        second=request.second.text,
        roles=roles,
        order=request.order,
        options=judge_options(assignment, request),
        rules=request.rules if request.HasField("rules") else None,
    )
    stub = PairJudgeServiceStub(assignment.judge.channel)
    answer = await ask(assignment, scope, stub.ComparePair, question, pb.ComparePairResponse)
    if isinstance(answer, Failure):
        provenance = Provenance(contract=assignment.role.contract)
        if identity is not None:
            provenance.name, provenance.version = identity.name, identity.version
        answer = _abstain(assignment, question, answer, provenance)
    else:
        fault = breach(question, answer)
        assignment.judge.quarantine.record(fault, scope.tenant)
        if fault:
            failure = Failure(verdict_pb2.ABSTAIN_REASON_UNPARSABLE, f"broke its contract: {fault}")
            answer = _abstain(assignment, question, failure, answer.provenance)
    answer.provenance.registered_name = assignment.judge.name
    answer.ClearField("measured_confidence")  # the gateway's word
    return answer


def _abstain(
    assignment: JudgeAssignment, question: pb.ComparePairRequest, failure: Failure, provenance: Provenance
) -> pb.ComparePairResponse:
    """The abstention that replaces a missing answer."""
    rationale = f"The judge {assignment.judge.name!r} {failure.explanation}."
    ballots = [
        pb.Ballot(
            order=order,
            preference=pb.PREFERENCE_ABSTAIN,
            rationale=rationale,
            abstain_reason=failure.reason,
        )
        for order in _ORDERS.get(question.order, _BOTH)
    ]
    roles: Sequence[pb.Role | None] = question.roles or [None]
    return pb.ComparePairResponse(
        votes=[
            pb.RoleVote(
                role=role,
                preference=pb.PREFERENCE_ABSTAIN,
                abstain_reason=failure.reason,
                ballots=ballots,
            )
            for role in roles
        ],
        preference=pb.PREFERENCE_ABSTAIN,
        provenance=provenance,
    )


class PairsEvaluation(Evaluation[PairsPlan]):
    """The comparison of one pair.

    The baselines need no generated roles and start at once. A judge that fails abstains; the others are not
    affected.
    """

    response_type = EvaluatePairsResponse

    def __init__(self, plan: PairsPlan, context: EvaluationContext, scope: EvaluationScope) -> None:
        super().__init__(plan, context, scope)
        self._shadows = ShadowCalls(plan.shadows, scope)
        self._roles_wait: BatchWait | None = scope.batch and BatchWait(scope.batch.until)

    async def work(self, emit: Emit) -> PairResult:
        wait = self._plan.request.shadow_wait.ToNanoseconds() / 1e9
        return await self._shadows.beside(self._evaluate(emit), wait, judged=lambda result: result.shadows)

    async def _evaluate(self, emit: Emit) -> PairResult:
        async with asyncio.TaskGroup() as group:
            metrics = group.create_task(score_texts(self._plan, self._scope))
            roles = group.create_task(self._find(emit))
            tasks = [
                group.create_task(self._compare(method, place, assignment, roles, emit))
                for place, method in enumerate(self._plan.methods)
                for assignment in self._plan.judges
            ]
        result = self._result(roles.result(), [task.result() for task in tasks])
        result.MergeFrom(metrics.result())
        return result

    async def _find(self, emit: Emit) -> RolesKnown:
        if self._plan.request.judging_omitted:
            return RolesKnown()
        known = await find_roles(self._plan, replace(self._scope, batch=self._roles_wait))
        if self._scope.batch is not None and self._roles_wait is not None and self._roles_wait.is_pending:
            self._scope.batch.is_pending = True
        emit(roles=known)
        return known

    async def _compare(
        self,
        method: str,
        place: int,
        assignment: JudgeAssignment,
        roles: asyncio.Task[RolesKnown],
        emit: Emit,
    ) -> PairComparison:
        voters = await _voters(method, roles)
        if method not in (BY_ONE_JUDGE, BY_FIXED_ROLES) and self._comes_later(roles.result()):
            return PairComparison(method=method, judge=assignment.judge.name)

        async def compare(judge: JudgeAssignment, scope: EvaluationScope) -> pb.ComparePairResponse:
            request, identity = self._plan.request, await self._context.directory.identity(judge.judge)
            return await repeated(
                judge,
                request.options,
                lambda one: compare_pair(one, request, voters, identity, scope),
                combine_comparisons,
            )

        comparison = PairComparison(
            method=method,
            judge=assignment.judge.name,
            comparison=await self._shadows.judged(assignment, compare, "comparison", place, method=method),
        )
        emit(comparison=comparison)
        return comparison

    def _comes_later(self, roles: RolesKnown) -> bool:
        if self._roles_wait is not None and self._roles_wait.is_pending:
            return True
        return self._scope.is_repeated_for(roles.failure, roles.generation)

    def _result(self, roles: RolesKnown, comparisons: list[PairComparison]) -> PairResult:
        request = self._plan.request
        provenances = [
            roles.generation.provenance,
            roles.clustering.provenance,
            *(one.comparison.provenance for one in comparisons),
        ]
        return PairResult(
            id=request.id,
            tags=request.tags,
            first_model=request.first.model,
            second_model=request.second.model,
            first_text=request.first.text,
            second_text=request.second.text,
            roles=roles,
            comparisons=comparisons,
            longer=longer_text(request.first.text, request.second.text),
            human_preference=request.human_preference,
            usage=total_usage(provenance.usage for provenance in provenances),
        )


async def _voters(method: str, roles: asyncio.Task[RolesKnown]) -> tuple[pb.Role, ...]:
    """The voting roles of a method; empty for a single judge without a role."""
    if method == BY_ONE_JUDGE:
        return ()
    if method == BY_FIXED_ROLES:
        return role_set(BY_FIXED_ROLES)
    # Shielded: cancelling one comparison must not cancel the roles of all.
    return tuple((await asyncio.shield(roles)).roles)


GENERATED_ROLE_CHARACTERS = 120
"""The supposed length of a role that a model is to write."""


class PairsKind(RunKind):
    method = "EvaluatePairs"
    request_type = EvaluatePairsRequest
    planner = staticmethod(plan_pairs)
    evaluation = PairsEvaluation
    name = "pairs"
    results = PAIRS
    summary = PairsKindSummary()
    roles = (ROLES_FINDER, PAIR_JUDGE, ALIGNMENT)

    def planned_calls(
        self, request: EvaluatePairsRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        del spec
        plan = plan_pairs(request, context.registry)
        shown = sum(map(len, (request.source, request.instruction, request.first.text, request.second.text)))
        count = plan.order_count
        calls = [
            # All roles vote in one call.
            PlannedCalls(one.judge, one.model, count, count * (shown + voters), prompt)
            for voters, prompt in (_planned_voters(plan, method) for method in plan.methods)
            for one in (*plan.judges, *counted_shadows(plan.shadows))
        ]
        if plan.finder is not None and plan.generated:
            finder = plan.finder
            calls.append(PlannedCalls(finder.judge, finder.model, 1, len(request.source), "generate_roles"))
        return calls

    def check_models(self, models: Sequence[str]) -> Iterator[Violation]:
        if models:
            yield Violation("models", "must be empty for pairs: the row names the author of each text")
        yield from super().check_models(models)

    def check_spec(self, spec: RunSpec) -> Iterator[Violation]:
        for found in check_role_plan(spec.pairs.roles):
            yield Violation(f"pairs.{found.field}", found.description)

    def _apply_options(self, request: EvaluatePairsRequest, spec: RunSpec) -> None:
        options = spec.pairs
        if options.HasField("roles"):
            request.roles.CopyFrom(options.roles)
        if options.order:
            request.order = options.order
        if options.baselines:
            request.baselines[:] = options.baselines
        if options.HasField("rules"):
            request.rules.CopyFrom(options.rules)
        if options.text_metrics:
            request.text_metrics[:] = options.text_metrics

    def preparation(self, result: PairResult) -> tuple[str, Any]:
        return "there are no roles", result.roles.generation

    def model_provenances(self, result: PairResult) -> Iterator[tuple[str, Provenance]]:
        del result  # The models wrote the texts before the evaluation.
        yield from ()


def _planned_voters(plan: PairsPlan, method: str) -> tuple[int, str]:
    """The length of the roles that vote in a method, in characters, and the prompt."""
    if method == BY_ONE_JUDGE:
        return 0, "compare_texts"
    if method == BY_FIXED_ROLES:
        return sum(map(text_length, role_set(BY_FIXED_ROLES))), "compare_texts_by_roles"
    roles = [*plan.objective, *plan.request.roles.subjective_roles]
    written = (plan.coarse_count + plan.fine_count) * GENERATED_ROLE_CHARACTERS
    return sum(map(text_length, roles)) + written, "compare_texts_by_roles"


KIND = PairsKind()
