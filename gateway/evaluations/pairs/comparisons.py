"""Calls a judge of pairs and normalizes its answer to one valid comparison."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.api.judging.v1.pair_judge_service_pb2_grpc import PairJudgeServiceStub
from gateway.evaluations.calls import call_judge, judge_options
from gateway.evaluations.failures import Failure
from gateway.evaluations.scope import EvaluationScope
from gateway.judges.selection import JudgeAssignment

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

    async def compare(timeout: float) -> pb.ComparePairResponse:
        response: pb.ComparePairResponse | None = await stub.ComparePair(question, timeout=timeout)
        # gRPC returns None where the bytes do not parse as the response.
        return pb.ComparePairResponse() if response is None else response

    answer = await call_judge(
        scope, assignment.judge, compare, left=scope.left(), longest=scope.timeouts.judge
    )
    if isinstance(answer, Failure):
        provenance = Provenance(contract=assignment.role.contract)
        if identity is not None:
            provenance.name, provenance.version = identity.name, identity.version
        answer = _abstain(assignment, question, answer, provenance)
    else:
        fault = _fault(answer, roles)
        assignment.judge.quarantine.record(fault)
        if fault:
            failure = Failure(verdict_pb2.ABSTAIN_REASON_UNPARSABLE, f"broke its contract: {fault}")
            answer = _abstain(assignment, question, failure, answer.provenance)
    answer.provenance.registered_name = assignment.judge.name
    return answer


def tally_preference(votes: Sequence[pb.RoleVote]) -> pb.Preference.ValueType:
    """The preference of the majority of votes: a tie for equal counts, an abstention where all abstain."""
    preferences = [vote.preference for vote in votes]
    if all(preference == pb.PREFERENCE_ABSTAIN for preference in preferences):
        return pb.PREFERENCE_ABSTAIN
    lead = preferences.count(pb.PREFERENCE_FIRST) - preferences.count(pb.PREFERENCE_SECOND)
    if lead == 0:
        return pb.PREFERENCE_TIE
    return pb.PREFERENCE_FIRST if lead > 0 else pb.PREFERENCE_SECOND


def _fault(answer: pb.ComparePairResponse, roles: Sequence[pb.Role]) -> str:
    """The first breach of the contract in an answer. Empty: none."""
    wanted = max(1, len(roles))
    if len(answer.votes) != wanted:
        return f"it gave {len(answer.votes)} votes for {wanted}"
    if any(vote.role != role for vote, role in zip(answer.votes, roles, strict=False)):
        return "its votes are not in the order of the roles"
    for vote in answer.votes:
        if vote.preference == pb.PREFERENCE_UNSPECIFIED:
            return "a vote has no preference"
        abstained = vote.preference == pb.PREFERENCE_ABSTAIN
        if abstained != (vote.abstain_reason != verdict_pb2.ABSTAIN_REASON_UNSPECIFIED):
            return "a vote abstains without a reason, or has a reason and does not abstain"
    if answer.preference != tally_preference(answer.votes):
        return "its preference is not that of its votes"
    return ""


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
