"""Compares two texts: the roles first, then all comparisons concurrently.

Model calls: one for the subjective roles, unless they are given or omitted, and one for all votes in each
order of presentation: two for one order, three for both (DRPE, section 4.2, counts two).
"""

from __future__ import annotations

import asyncio

from dramaturg.api.evaluation.v1.pairs_pb2 import (
    EvaluatePairsResponse,
    PairComparison,
    PairResult,
    RolesKnown,
)
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.judge.length import longer_text
from dramaturg.judge.role_sets import role_set
from dramaturg.judge.usage import total_usage
from gateway.evaluations.pairs.comparisons import compare_pair
from gateway.evaluations.pairs.metrics import score_texts
from gateway.evaluations.pairs.plan import BY_FIXED_ROLES, BY_ONE_JUDGE, PairsPlan
from gateway.evaluations.pairs.roles import find_roles
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.shadows import ShadowCalls
from gateway.evaluations.streams import Emit, Evaluation
from gateway.judges.directory import JudgeDirectory
from gateway.judges.selection import JudgeAssignment


class PairsEvaluation(Evaluation):
    """The comparison of one pair.

    The baselines need no generated roles and start at once. A judge that fails abstains; the others are not
    affected.

    Args:
        plan: The plan of the evaluation.
        directory: The identities of the judges.
        scope: What the calls of the evaluation share.
    """

    def __init__(self, plan: PairsPlan, directory: JudgeDirectory, scope: EvaluationScope) -> None:
        super().__init__(EvaluatePairsResponse, plan.accepted)
        self._plan = plan
        self._directory = directory
        self._scope = scope
        self._shadows = ShadowCalls(plan.shadows, scope)

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
        known = await find_roles(self._plan, self._scope)
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

        async def compare(judge: JudgeAssignment, scope: EvaluationScope) -> pb.ComparePairResponse:
            identity = await self._directory.identity(judge.judge)
            return await compare_pair(judge, self._plan.request, voters, identity, scope)

        comparison = PairComparison(
            method=method,
            judge=assignment.judge.name,
            comparison=await self._shadows.judged(assignment, compare, "comparison", place, method=method),
        )
        emit(comparison=comparison)
        return comparison

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
