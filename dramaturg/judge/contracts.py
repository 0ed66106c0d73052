"""Serves implementations of the judging contracts: ``Contract`` objects and servers.

Example:
    A judge of one candidate at a time::

        class Terse:
            name, version, description = "terse", "1.0.0", "Passes short texts."
            criteria, capabilities = ("short",), ()

            async def judge(self, item: JudgeItem) -> Assessment:
                short = len(item.candidate.text) < 1000
                return Assessment(verdicts=[passed("short") if short else failed("short")])

        serve(judge_contract(Terse()))
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from dramaturg.api.agents.v1 import synthesize_service_pb2, synthesize_service_pb2_grpc
from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.content_pb2 import Conversation
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.judging.v1 import judge_service_pb2, judge_service_pb2_grpc
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest, JudgeResponse
from dramaturg.judge import verdicts
from dramaturg.judge.batches import JudgeBatch, JudgeItem, decode_batch
from dramaturg.judge.conversations import units_of
from dramaturg.judge.criteria import scale_problem
from dramaturg.judge.protocols import ANY_CRITERION, BatchJudge, Implementation, Judge, Synthesizer
from dramaturg.judge.provenance import sign
from dramaturg.judge.steps import ParsedCandidate
from dramaturg.judge.streams import merge_streams
from dramaturg.service import threads
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, Violation, downstream, invalid_fields, to_error_status
from dramaturg.service.server import run

JUDGE_SERVICE = judge_service_pb2.DESCRIPTOR.services_by_name["JudgeService"]
"""The contract of judges of texts."""
SYNTHESIZE_SERVICE = synthesize_service_pb2.DESCRIPTOR.services_by_name["SynthesizeService"]
"""The contract of synthesizers."""

CONCURRENCY = 16
"""The default number of candidates of one request that are judged concurrently."""

logger = logging.getLogger(__name__)

_DECIDED = (verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL)

ServicerContext = grpc.aio.ServicerContext[Any, Any]
_Result = tuple[JudgeItem, Assessment | ServiceError]
_JudgeBatch = Callable[[Sequence[JudgeItem]], AsyncGenerator[_Result]]


def judge_contract(judge: Judge | BatchJudge, *, concurrency: int = CONCURRENCY) -> Contract:
    """Serves a judge of texts as ``judging.v1.JudgeService``.

    Args:
        judge: The judge. With a method ``judge_batch`` it receives all candidates of a request together.
        concurrency: The number of candidates of one request that are judged concurrently, without
            ``judge_batch``.
    """
    add = judge_service_pb2_grpc.add_JudgeServiceServicer_to_server
    judge_batch = (
        judge.judge_batch if isinstance(judge, BatchJudge) else partial(_fan_out, judge, concurrency)
    )
    contract = implementation_contract(JUDGE_SERVICE, add, _JudgeServicer(judge, judge_batch), judge)
    return replace(contract, weights={"Judge": lambda request: len(request.candidates)})


def synthesize_contract(synthesizer: Synthesizer) -> Contract:
    """Serves a synthesizer as ``agents.v1.SynthesizeService``."""
    add = synthesize_service_pb2_grpc.add_SynthesizeServiceServicer_to_server
    return request_contract(SYNTHESIZE_SERVICE, add, synthesizer, synthesizer.synthesize)


def request_contract(
    descriptor: ServiceDescriptor,
    add: Callable[[Any, grpc.aio.Server], None],
    implementation: Implementation,
    answer: Callable[[Any], Awaitable[Any]],
    *,
    provenance: Callable[[Any], Provenance] = attrgetter("provenance"),
) -> Contract:
    """Serves an implementation by a contract with one method, of one request and one response.

    Args:
        descriptor: The service's descriptor.
        add: The generated function that adds a servicer to a server.
        implementation: Its identity becomes the contract's, and signs the provenance of each response.
        answer: Answers a request.
        provenance: Returns the provenance of a response.
    """
    (method,) = descriptor.methods

    async def call(request: Any, context: ServicerContext) -> Any:
        del context
        started = time.perf_counter()
        response = await answer(request)
        sign(provenance(response), implementation, descriptor.full_name, started=started)
        return response

    return implementation_contract(descriptor, add, SimpleNamespace(**{method.name: call}), implementation)


def implementation_contract(
    descriptor: ServiceDescriptor,
    add: Callable[[Any, grpc.aio.Server], None],
    servicer: Any,
    implementation: Implementation,
) -> Contract:
    """Serves an implementation by any contract.

    Args:
        descriptor: The service's descriptor.
        add: The generated function that adds a servicer to a server.
        servicer: Decodes requests, calls the implementation, and encodes its answers.
        implementation: Its identity becomes the contract's.
    """
    return Contract.make(
        descriptor,
        add,
        servicer,
        name=implementation.name,
        version=implementation.version,
        description=implementation.description,
        criteria=implementation.criteria,
        capabilities=implementation.capabilities,
    )


def serve(
    contract: Contract,
    argv: Sequence[str] | None = None,
    *,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> None:
    """Serves one contract until SIGTERM or SIGINT.

    Args:
        contract: The contract, made by one of the functions above.
        argv: Command-line arguments (``--host``, ``--port``); default: those of the process.
        interceptors: Additional gRPC interceptors (see ``dramaturg.service.interceptors``).
    """
    run(_SingleContractApp(contract), argv, interceptors=interceptors)


class _SingleContractApp:
    def __init__(self, contract: Contract) -> None:
        self.name = contract.identity.name
        self._contract = contract

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        yield [self._contract]


class _JudgeServicer(judge_service_pb2_grpc.JudgeServiceServicer):
    def __init__(self, judge: Implementation, judge_batch: _JudgeBatch) -> None:
        self._judge = judge
        self._judge_batch = judge_batch

    async def Judge(self, request: JudgeRequest, context: ServicerContext) -> AsyncGenerator[JudgeResponse]:
        del context
        unread = sum(
            len(one.text)
            for one in (*request.candidates, *request.pool)
            if one.reading == verdict_pb2.READING_UNSPECIFIED
        )
        batch = await threads.parse(
            unread,
            decode_batch,
            request,
            requested_criteria(request, self._judge.criteria, self._judge.capabilities),
        )
        require_unique_ids(request)
        started = time.perf_counter()
        items: list[JudgeItem] = []
        for candidate in batch.candidates[: len(request.candidates)]:
            if candidate.reading == verdict_pb2.READING_EMPTY:
                empty = Assessment(verdicts=verdicts.empty_candidate(batch.criteria))
                yield self._response(candidate, empty, batch, started)
            else:
                items.append(JudgeItem(batch, candidate))
        if not items:
            return
        missing = dict.fromkeys(items)
        async with aclosing(self._judge_batch(items)) as results:
            async for item, result in results:
                if item in missing:
                    del missing[item]
                    yield self._response(item.candidate, result, batch, started)
        for item in missing:
            unanswered = ServiceError(
                grpc.StatusCode.INTERNAL,
                error_reason_pb2.ERROR_REASON_INTERNAL,
                "the judge gave no assessment of this candidate",
            )
            yield self._response(item.candidate, unanswered, batch, started)

    def _response(
        self,
        candidate: ParsedCandidate,
        result: Assessment | ServiceError,
        batch: JudgeBatch,
        started: float,
    ) -> JudgeResponse:
        """Returns the response of one candidate: its completed assessment or its error."""
        if isinstance(result, Assessment):
            try:
                self._complete(result, candidate, batch)
            except ValueError as error:
                result = _as_service_error(error)
            else:
                sign(result.provenance, self._judge, JUDGE_SERVICE.full_name, started=started)
                return JudgeResponse(candidate_id=candidate.id, assessment=result)
        return JudgeResponse(candidate_id=candidate.id, error=to_error_status(result))

    def _complete(self, assessment: Assessment, candidate: ParsedCandidate, batch: JudgeBatch) -> None:
        """Completes an assessment to one verdict per criterion, in order, and adds the candidate's reading.

        Verdicts on criteria of the judge that the request does not name are dropped. A judge that passes or
        fails a criterion with a scale does not support it. Verdicts on each turn or call are completed, too
        (``verdicts.by_unit``).

        Raises:
            ValueError: The assessment has a verdict on an unknown criterion, or two verdicts on one
                criterion.
        """
        criteria = batch.criteria
        if [verdict.criterion for verdict in assessment.verdicts] != list(criteria):
            unasked = {*self._judge.criteria}.difference(criteria)
            given = [verdict for verdict in assessment.verdicts if verdict.criterion not in unasked]
            ordered = verdicts.in_order(given, criteria)
            del assessment.verdicts[:]
            assessment.verdicts.extend(ordered)
        # Most requests have no scales and no units, and every verdict comes by here.
        for verdict in assessment.verdicts if batch.scales or batch.units else ():
            if verdict.criterion in batch.scales and verdict.outcome in _DECIDED:
                verdict.CopyFrom(verdicts.unscored(verdict.criterion))
            if unit := batch.units.get(verdict.criterion):
                places = units_of(candidate.conversation or Conversation(), unit)
                verdict.CopyFrom(verdicts.by_unit(verdict, places))
        assessment.reading = candidate.reading


async def _fan_out(judge: Judge, concurrency: int, items: Sequence[JudgeItem]) -> AsyncGenerator[_Result]:
    """Judges candidates concurrently, one per call of ``judge``."""
    waiting = iter(items)

    async def work() -> AsyncGenerator[_Result]:
        for item in waiting:
            try:
                yield item, await judge.judge(item)
            except Exception as error:
                yield item, _as_service_error(error)

    workers = [work() for _ in range(min(concurrency, len(items)))]
    async with aclosing(merge_streams(workers)) as results:
        async for result in results:
            yield result


def requested_criteria(
    request: JudgeRequest, known: Sequence[str], capabilities: Sequence[str]
) -> Sequence[str]:
    """Returns the criteria to judge: those of the request, else all of the judge.

    Args:
        request: The request.
        known: The criteria of the judge.
        capabilities: Its capabilities.

    Raises:
        ServiceError: A criterion is unknown to the judge or repeated, or there are no criteria.
    """
    wanted = [one.id for one in request.criteria]
    any_criterion = ANY_CRITERION in capabilities
    for index, criterion in enumerate(wanted):
        if criterion not in known and not any_criterion:
            raise ServiceError(
                grpc.StatusCode.INVALID_ARGUMENT,
                error_reason_pb2.ERROR_REASON_CRITERION_UNKNOWN,
                f"criteria[{index}].id is {criterion!r}; this judge's criteria are {', '.join(known)}",
                metadata={"criterion": criterion},
            )
    if repeated := list(_repeated("criteria", wanted)):
        raise invalid_fields(repeated)
    problems = [
        Violation(f"criteria[{index}].scale", problem)
        for index, one in enumerate(request.criteria)
        if one.HasField("scale") and (problem := scale_problem(one.scale))
    ]
    if problems:
        raise invalid_fields(problems)
    if not wanted and not known and any_criterion:
        raise invalid_fields([Violation("criteria", "must not be empty: this judge has none of its own")])
    return wanted or known


def require_unique_ids(request: JudgeRequest) -> None:
    """Checks the ids of the candidates and of the pool.

    Raises:
        ServiceError: An id is repeated.
    """
    candidates = [one.id for one in request.candidates]
    if len({*candidates, *(one.id for one in request.pool)}) == len(candidates) + len(request.pool):
        return
    violations = list(_repeated("candidates", candidates))
    taken = set(candidates)
    for index, one in enumerate(request.pool):
        if one.id in taken:
            violations.append(Violation(f"pool[{index}].id", f"is {one.id!r}, which another candidate has"))
        taken.add(one.id)
    raise invalid_fields(violations)


def _repeated(field: str, values: Sequence[str]) -> Iterator[Violation]:
    first: dict[str, int] = {}
    for index, value in enumerate(values):
        if value in first:
            yield Violation(f"{field}[{index}].id", f"is {value!r}, as is {field}[{first[value]}].id")
        first.setdefault(value, index)


def _as_service_error(error: Exception) -> ServiceError:
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, grpc.aio.AioRpcError):
        return downstream(error, "a dependency")
    logger.error("a candidate could not be judged", exc_info=error)
    return ServiceError(grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_INTERNAL, "internal error")
