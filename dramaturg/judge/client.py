"""A client of judges of texts: requests from candidates, results by candidate."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.judging.v1.judge_service_pb2 import (
    Criterion,
    JudgeCandidate,
    JudgeRequest,
    JudgeResponse,
)
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.judge.batches import encode_candidate
from dramaturg.judge.steps import parse_candidate
from dramaturg.judge.streams import collect_responses
from dramaturg.service.errors import ServiceError, from_error_status

MAX_POOL = 200
"""The maximum number of candidates of a request's pool."""


def judge_request(
    task: Task,
    candidates: Iterable[Candidate],
    *,
    reference: Script | None = None,
    pool: Iterable[Candidate] = (),
    criteria: Iterable[str] = (),
    options: JudgeOptions | None = None,
) -> JudgeRequest:
    """Makes a request to judge candidates, parsed as in the gateway.

    Args:
        task: The task.
        candidates: The candidates; their ids are unique.
        reference: The reference script, if any.
        pool: Additional candidates of the task that are not judged.
        criteria: The criteria to judge. Empty: all criteria of the judge.
        options: The model and its sampling.
    """
    return JudgeRequest(
        task=task,
        candidates=map(_encode, candidates),
        reference=reference,
        criteria=[Criterion(id=criterion) for criterion in criteria],
        options=options,
        pool=map(_encode, pool),
    )


async def judge(
    channel: grpc.aio.Channel,
    request: JudgeRequest,
    *,
    timeout: float | None = None,
    metadata: Sequence[tuple[str, str]] = (),
) -> AsyncGenerator[tuple[str, Assessment | ServiceError]]:
    """Calls a judge, and repeats the call for candidates that a broken stream lacks.

    Args:
        channel: The judge's channel.
        request: The request.
        timeout: The time limit of each call in seconds, or None.
        metadata: Metadata of the call, for example the role for a gateway.

    Yields:
        The id of each candidate with its assessment or its error, as they arrive. Candidates that the judge
        omits are missing.

    Raises:
        grpc.aio.AioRpcError: The call failed, and candidates are unanswered.
    """
    by_id = {candidate.id: candidate for candidate in request.candidates}
    stub = JudgeServiceStub(channel)

    def call(ids: Sequence[str]) -> grpc.aio.UnaryStreamCall[JudgeRequest, JudgeResponse]:
        asked = request if len(ids) == len(by_id) else request_for(request, ids)
        return stub.Judge(asked, timeout=timeout, metadata=tuple(metadata))

    async for key, response in collect_responses(list(by_id), call, lambda response: response.candidate_id):
        yield key, result_of(response)


async def judge_one(
    channel: grpc.aio.Channel,
    request: JudgeRequest,
    *,
    candidate_id: str = "",
    timeout: float | None = None,
    metadata: Sequence[tuple[str, str]] = (),
) -> Assessment:
    """Returns the assessment of one candidate (see ``judge``). Empty ``candidate_id``: the only one.

    Raises:
        ServiceError: The candidate has an error or no answer.
        grpc.aio.AioRpcError: The call failed.
    """
    result: Assessment | ServiceError = ServiceError(
        grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED, "the judge did not answer"
    )
    async for key, answered in judge(channel, request, timeout=timeout, metadata=metadata):
        if key == candidate_id or not candidate_id:
            result = answered
    if isinstance(result, ServiceError):
        raise result
    return result


def request_for(request: JudgeRequest, ids: Sequence[str], *, keep_pool: bool = True) -> JudgeRequest:
    """Makes a request for some of the candidates of another request.

    Args:
        request: The other request.
        ids: The ids of the candidates to judge.
        keep_pool: Whether the remaining candidates join the pool, for judges that use one.
    """
    wanted = set(ids)
    others: list[JudgeCandidate] = []
    if keep_pool:
        others = [one for one in request.candidates if one.id not in wanted] + list(request.pool)
    return JudgeRequest(
        task=request.task,
        candidates=[one for one in request.candidates if one.id in wanted],
        reference=request.reference if request.HasField("reference") else None,
        criteria=request.criteria,
        options=request.options if request.HasField("options") else None,
        pool=others[:MAX_POOL],
    )


def result_of(response: JudgeResponse) -> Assessment | ServiceError:
    """Returns the assessment or error of a response. An empty response is an assessment without verdicts."""
    if response.WhichOneof("result") == "error":
        return from_error_status(response.error)
    return response.assessment


def _encode(candidate: Candidate) -> JudgeCandidate:
    return encode_candidate(candidate, parse_candidate(candidate))
