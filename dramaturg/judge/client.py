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
"""The most candidates of a request's pool."""


def judge_request(
    task: Task,
    candidates: Iterable[Candidate],
    *,
    reference: Script | None = None,
    pool: Iterable[Candidate] = (),
    criteria: Iterable[str] = (),
    options: JudgeOptions | None = None,
) -> JudgeRequest:
    """A request to judge candidates, read as the gateway reads them.

    Args:
        task: The task.
        candidates: The candidates; their ids are unique.
        reference: The script to compare with, if there is one.
        pool: Further candidates of the task that are not judged.
        criteria: The criteria to judge. Empty: all that the judge has.
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
    """Has a judge judge candidates, and asks again for those that a broken stream lacks.

    Args:
        channel: The judge's channel.
        request: The request.
        timeout: The most seconds for each call, or None.
        metadata: Metadata of the call, such as the role that a gateway is to ask.

    Yields:
        The id of each candidate with its assessment or its error, as they come. A candidate that the judge
        left out is not among them.

    Raises:
        grpc.aio.AioRpcError: The call failed, with candidates unanswered.
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
    timeout: float | None = None,
    metadata: Sequence[tuple[str, str]] = (),
) -> Assessment:
    """The assessment of a request's only candidate (see ``judge``).

    Raises:
        ServiceError: The candidate has an error, or no answer.
        grpc.aio.AioRpcError: The call failed.
    """
    result: Assessment | ServiceError = ServiceError(
        grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED, "the judge did not answer"
    )
    async for _, answered in judge(channel, request, timeout=timeout, metadata=metadata):
        result = answered
    if isinstance(result, ServiceError):
        raise result
    return result


def request_for(request: JudgeRequest, ids: Sequence[str], *, keep_pool: bool = True) -> JudgeRequest:
    """A request for some of the candidates of another one.

    Args:
        request: The other one.
        ids: The candidates that it still asks for.
        keep_pool: Whether the remaining candidates join its pool, for judges that use one.
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
    """What a response says of its candidate; an assessment without verdicts where it says nothing."""
    if response.WhichOneof("result") == "error":
        return from_error_status(response.error)
    return response.assessment


def _encode(candidate: Candidate) -> JudgeCandidate:
    return encode_candidate(candidate, parse_candidate(candidate))
