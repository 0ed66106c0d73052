"""The gold answer (ABSEval, section 3.2; ablations: Table 3, Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest, GoldAnswer
from dramaturg.judge.steps import ParsedCandidate
from gateway.evaluations.calls import call_judge, judge_options
from gateway.evaluations.failures import Failure
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.scripts.plan import ScriptsPlan
from gateway.judges.selection import JudgeAssignment


async def find_gold_answer(
    plan: ScriptsPlan, readings: Sequence[ParsedCandidate], scope: EvaluationScope
) -> GoldAnswer | None:
    """The gold answer: that of the request, or one that the synthesizer writes; None where none is wanted.

    A gold answer that could not be written has a ``failure``. It is not an error: the candidates are judged
    without it.

    Args:
        plan: The evaluation.
        readings: The candidates as they were read, in order.
        scope: What the calls of the evaluation share.
    """
    if plan.synthesizer is not None:
        pooled = plan.source == scripts_pb2.GOLD_ANSWER_SOURCE_POOLED
        pool = [
            _anonymous(candidate)
            for candidate, read in zip(plan.request.candidates, readings, strict=True)
            if pooled and read.reading != verdict_pb2.READING_EMPTY
        ]
        answer = await _write(plan.synthesizer, plan.request, pool, scope)
    elif plan.source == scripts_pb2.GOLD_ANSWER_SOURCE_GIVEN:
        answer = GoldAnswer(script=plan.request.gold_answer)
    else:
        return None
    answer.source = plan.source
    return answer


async def _write(
    assignment: JudgeAssignment,
    request: EvaluateScriptsRequest,
    pool: Sequence[Candidate],
    scope: EvaluationScope,
) -> GoldAnswer:
    question = SynthesizeRequest(
        task=request.task, candidates=pool, options=judge_options(assignment, request)
    )
    stub = SynthesizeServiceStub(assignment.judge.channel)
    longest = scope.for_gold_answer()

    async def synthesize(timeout: float) -> SynthesizeResponse:
        response: SynthesizeResponse | None = await stub.Synthesize(question, timeout=timeout)
        # gRPC hands over None where the bytes do not parse as the response.
        return SynthesizeResponse() if response is None else response

    response = await call_judge(scope, assignment.judge, synthesize, left=longest, longest=longest)
    if isinstance(response, Failure):
        failure = f"The judge {assignment.judge.name!r} {response.explanation}."
        return GoldAnswer(failure=failure, failure_reason=response.reason)
    answer = _read(response)
    answer.provenance.registered_name = assignment.judge.name
    return answer


def _read(response: SynthesizeResponse) -> GoldAnswer:
    answer = GoldAnswer(pool_ids=response.pool_ids, provenance=response.provenance, failure=response.failure)
    if answer.failure:
        answer.failure_reason = response.failure_reason
    elif not any(step.text.strip() for step in response.script.steps):
        answer.failure = "The synthesizer answered without steps."
        answer.failure_reason = verdict_pb2.ABSTAIN_REASON_EMPTY
    if not answer.failure:
        answer.script.CopyFrom(response.script)
    return answer


def _anonymous(candidate: Candidate) -> Candidate:
    """The candidate without the model that wrote it."""
    if not candidate.model:
        return candidate
    copy = Candidate()
    copy.CopyFrom(candidate)
    copy.ClearField("model")
    return copy
