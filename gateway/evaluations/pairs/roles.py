"""The roles of a comparison: objective and generated roles, clustered (DRPE, section 3.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.pairs_pb2 import RolesKnown
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ROLE_ORIGIN_OBJECTIVE, Role
from dramaturg.api.roles.v1.role_service_pb2 import (
    ClusterRolesRequest,
    ClusterRolesResponse,
    GenerateRolesRequest,
    GenerateRolesResponse,
)
from dramaturg.api.roles.v1.role_service_pb2_grpc import RoleServiceStub
from dramaturg.judge.role_counts import role_shortage
from dramaturg.service.validation import violations
from gateway.evaluations.calls import call_judge, judge_options
from gateway.evaluations.failures import Failure
from gateway.evaluations.pairs.plan import PairsPlan
from gateway.evaluations.pairs.role_figures import maps_all
from gateway.evaluations.scope import EvaluationScope
from gateway.judges.selection import JudgeAssignment

Answer = TypeVar("Answer")


async def find_roles(plan: PairsPlan, scope: EvaluationScope) -> RolesKnown:
    """Generates and clusters the roles.

    A failure is reported in ``failure`` and raises no error: the roles found so far judge. Generation and
    clustering each take at most half of the time left.

    Args:
        plan: The plan of the evaluation.
        scope: What the calls of the evaluation share.
    """
    known = RolesKnown(roles=[*plan.objective, *plan.request.roles.subjective_roles])
    failures: list[str] = []
    if plan.finder is not None and plan.generated:
        failures += await _generate(plan, plan.finder, scope, known)
    if plan.finder is not None and plan.clustered and _has_subjective(known.roles):
        failures += await _cluster(plan, plan.finder, scope, known)
    known.failure = " ".join(failures)
    return known


async def _generate(
    plan: PairsPlan, finder: JudgeAssignment, scope: EvaluationScope, known: RolesKnown
) -> Sequence[str]:
    """Adds generated roles; returns the reasons for the absence of some."""
    request = GenerateRolesRequest(
        source=plan.request.source,
        coarse_count=plan.coarse_count,
        fine_count=plan.fine_count,
        options=judge_options(finder, plan.request),
    )
    stub = RoleServiceStub(finder.judge.channel)
    response = await _ask(
        finder,
        scope,
        lambda timeout: stub.GenerateRoles(request, timeout=timeout),
        GenerateRolesResponse(),
    )
    if isinstance(response, Failure):
        return [f"No roles were generated: {finder.judge.name!r} {response.explanation}."]
    _register(response.provenance, finder)
    known.generation.CopyFrom(response)
    # A role beyond the contract's limits would make the whole comparison fail.
    sound = [role for role in response.roles if not violations(role)]
    wanted = plan.coarse_count + plan.fine_count
    taken = sound[:wanted]
    known.roles.extend(taken)
    if not taken:
        return [f"No roles were generated: {response.failure or 'the answer has no usable role.'}"]
    shortage = role_shortage(len(taken), wanted)
    return [shortage] if shortage else []


async def _cluster(
    plan: PairsPlan, finder: JudgeAssignment, scope: EvaluationScope, known: RolesKnown
) -> Sequence[str]:
    """Drops similar roles; returns the reasons for keeping all."""
    wish = plan.request.roles
    request = ClusterRolesRequest(
        roles=known.roles,
        eps=wish.eps if wish.HasField("eps") else None,
        min_samples=wish.min_samples if wish.HasField("min_samples") else None,
    )
    stub = RoleServiceStub(finder.judge.channel)
    response = await _ask(
        finder, scope, lambda timeout: stub.ClusterRoles(request, timeout=timeout), ClusterRolesResponse()
    )
    if isinstance(response, Failure):
        return [f"The roles are not clustered: {finder.judge.name!r} {response.explanation}."]
    _register(response.provenance, finder)
    known.clustering.CopyFrom(response)
    known.clustered_roles.extend(known.roles)
    if not maps_all(response, len(known.roles)):
        known.clustering.ClearField("map")
    kept = [role for role in known.roles if role.origin == ROLE_ORIGIN_OBJECTIVE or role in response.roles]
    del known.roles[:]
    known.roles.extend(kept)
    return []


async def _ask(
    finder: JudgeAssignment,
    scope: EvaluationScope,
    call: Callable[[float], Awaitable[Answer | None]],
    nothing: Answer,
) -> Answer | Failure:
    left = scope.left()

    async def answer(timeout: float) -> Answer:
        response = await call(timeout)
        # gRPC returns None where the bytes do not parse as the response.
        return nothing if response is None else response

    return await call_judge(
        scope, finder.judge, answer, left=None if left is None else left / 2, longest=scope.timeouts.judge
    )


def _register(provenance: Provenance, finder: JudgeAssignment) -> None:
    provenance.registered_name = finder.judge.name


def _has_subjective(roles: Sequence[Role]) -> bool:
    return any(role.origin != ROLE_ORIGIN_OBJECTIVE for role in roles)
