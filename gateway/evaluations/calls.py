"""Calls to judges: each takes a slot of the judge, has a timeout, and returns its failure."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_BATCH_PENDING, ABSTAIN_REASON_TIMED_OUT
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.embedding import EmbedFailure, TextVectors, embed_texts
from dramaturg.service.errors import from_rpc_error
from gateway.evaluations.failures import (
    Failure,
    broken_contract,
    of_error,
    quarantined,
    timed_out,
    too_large,
    unidentified,
    wrong_version,
)
from gateway.evaluations.judge_answers import (
    empty_breach,
    limit_response,
    mark_version,
    provenance_of,
    states_other,
)
from gateway.evaluations.repeats import has_repeats, set_repeat
from gateway.evaluations.scope import EvaluationScope, SeenIdentity
from gateway.evaluations.streams import count_judge_call
from gateway.judges.registry import Judge
from gateway.judges.selection import JudgeAssignment

Answer = TypeVar("Answer")
Response = TypeVar("Response", bound=Message)


class Request(Protocol):
    """A request for an evaluation."""

    @property
    def options(self) -> JudgeOptions:
        """The model, sampling and repeat of the judges."""


def judge_options(assignment: JudgeAssignment, request: Request) -> JudgeOptions:
    """The options for the judge of an assignment."""
    options = JudgeOptions(model=assignment.model, repeat_index=request.options.repeat_index)
    if request.options.HasField("sampling"):
        options.sampling.CopyFrom(request.options.sampling)
    if has_repeats(assignment.role):
        set_repeat(options, request.options, assignment.repeat)
    return options


async def ask(
    assignment: JudgeAssignment,
    scope: EvaluationScope,
    method: Any,
    request: Message,
    answer: type[Response],
    *,
    left: float | None = None,
    longest: float | None = None,
) -> Response | Failure:
    """Calls a method of an assignment's judge when a slot is free.

    Args:
        assignment: The assignment of the judge.
        scope: What the calls of the evaluation share.
        method: The method of a stub on the judge's channel.
        request: The request of the method.
        answer: The type of the response.
        left: The limit of waiting and calling together, in seconds. None: the time left of the evaluation.
        longest: The timeout of the call alone, in seconds, unless the judge has one of its own. None: that of
            judges.

    Returns:
        The response, within the limits of ``gateway.evaluations.judge_answers``, or the failure of the call.
        A response that does not parse is empty.
    """
    judge = assignment.judge
    left = scope.left() if left is None else left
    longest = judge.timeout(scope.timeouts.judge if longest is None else longest)
    begun = time.perf_counter()

    async def work(limit: asyncio.Timeout) -> Response | Failure:
        response: Response | None = await method(request, timeout=_restart(limit, limit.when(), longest))
        if response is None:  # which gRPC returns where the bytes do not parse as the response
            response = answer()
        identity = judge.identity.known
        if (provenance := provenance_of(response)) is not None:
            if states_other(provenance, identity):
                judge.identity.doubt()
            mark_version(provenance, judge.deviation)
        fits = limit_response(response, judge.role, identity)
        if not fits:
            judge.quarantine.record("its answer is too large", scope.tenant)
        _note_usage(scope, response)
        if not fits:
            return too_large()
        broken = empty_breach(response, judge.role)
        return broken_contract(broken) if broken else response

    answered = await _in_slot(scope, judge, work, left)
    record_answer(scope, judge, answered if isinstance(answered, Failure) else None, begun)
    return answered


async def read_judge(
    scope: EvaluationScope,
    judge: Judge,
    stream: Callable[[], AsyncGenerator[Answer]],
    take: Callable[[Answer], None],
    *,
    left: float | None,
    longest: float,
) -> Failure | None:
    """Reads a stream of answers of a judge when a slot is free.

    Args:
        scope: What the calls of the evaluation share.
        judge: The judge whose slot is taken.
        stream: Makes the call and yields its answers.
        take: Takes each answer; it does not raise.
        left: The limit of waiting and reading together, in seconds. None: no limit.
        longest: The timeout from the call to the first answer and from each answer to the next, in seconds,
            unless the judge has one of its own.

    Returns:
        The failure that ended the stream; None where the stream is complete.
    """
    longest = judge.timeout(longest)

    async def work(limit: asyncio.Timeout) -> None:
        ends = limit.when()
        _restart(limit, ends, longest)
        async with aclosing(stream()) as answers:
            async for answer in answers:
                take(answer)  # which limits it
                _note_usage(scope, answer)
                _restart(limit, ends, longest)

    return await _in_slot(scope, judge, work, left)


def record_answer(
    scope: EvaluationScope, judge: Judge, failure: Failure | None, begun: float, *, noted: bool = True
) -> None:
    """Counts a call to a judge, and records its failure.

    Args:
        scope: What the calls of the evaluation share.
        judge: The judge.
        failure: The failure; None after an answer.
        begun: The start of the call, on the clock of ``time.perf_counter``.
        noted: Whether ``scope.failures`` gets the failure.
    """
    seconds = time.perf_counter() - begun
    count_judge_call(judge.role.name, judge.name, None if failure is None else failure.reason, seconds)
    if scope.batch is not None and failure is not None and failure.reason == ABSTAIN_REASON_BATCH_PENDING:
        scope.batch.is_pending = True
    if noted and failure is not None:
        scope.failures.append(failure._replace(judge=f"{judge.role.name} {judge.name!r}"))


async def _in_slot(
    scope: EvaluationScope,
    judge: Judge,
    work: Callable[[asyncio.Timeout], Awaitable[Answer]],
    left: float | None,
) -> Answer | Failure:
    """Runs work in a slot of a judge, within the time left; returns the failure of the call.

    Attempts of a judge that has retries share the timeout of the call.
    """
    try:
        async with asyncio.timeout(left) as limit:
            with (
                await judge.turns.take(scope.tenant),
                scope.pending.call(f"{judge.role.name} {judge.name!r}"),
            ):
                for attempt in itertools.count(1):
                    if (refused := await refusal(judge, scope.tenant, scope.identities)) is not None:
                        return refused
                    try:
                        answered = await work(limit)
                    except grpc.aio.AioRpcError as error:
                        failed = from_rpc_error(error)
                    else:
                        judge.retries.record_answer()
                        return answered
                    if (wait := judge.retries.wait(attempt, failed)) is None:
                        return of_error(failed, judge.role)
                    await asyncio.sleep(wait)
    except TimeoutError:
        pass
    return timed_out()


async def refusal(judge: Judge, tenant: str, seen: set[SeenIdentity] | None = None) -> Failure | None:
    """Why a judge is not called: quarantine, or its version. None: it may be called.

    Args:
        judge: The judge.
        tenant: The tenant for which it is called.
        seen: Receives its identity. None: its identity is fetched only where a version is expected.
    """
    if reason := judge.quarantine.reason(tenant):
        return quarantined(reason)
    expected = judge.entry.expect_version
    if seen is None and not expected:
        return None
    identity = await judge.identity.current()
    if identity is None:
        return unidentified(expected) if expected else None
    differs = judge.deviation
    if seen is not None:
        seen.add(
            SeenIdentity(
                judge.role.name,
                judge.name,
                identity.name,
                identity.version,
                expected,
                differs,
                judge.entry.reaction,
            )
        )
    if not differs or judge.entry.reaction == "warn":
        return None
    # A judge that is not called cannot tell that it was corrected.
    judge.identity.doubt()
    return wrong_version(differs)


def _note_usage(scope: EvaluationScope, answer: Any) -> None:
    # Streams of judges yield candidates with their responses.
    response = answer[-1] if isinstance(answer, tuple) else answer
    if scope.batch is not None:
        scope.batch.note(response)
    provenance = getattr(getattr(response, "assessment", response), "provenance", None)
    if isinstance(provenance, Provenance):
        scope.usage.append(provenance.usage)


def _restart(limit: asyncio.Timeout, ends: float | None, longest: float) -> float:
    """Reschedules a limit to ``longest`` seconds from now, at most to ``ends``; returns the seconds left."""
    now = asyncio.get_running_loop().time()
    if ends is None or ends - now > longest:
        limit.reschedule(now + longest)
        return longest
    limit.reschedule(ends)
    return ends - now


async def embed_by(assignment: JudgeAssignment, scope: EvaluationScope, texts: Sequence[str]) -> TextVectors:
    """Embeds texts within the time left. A service with a timeout of its own has it in every call.

    Args:
        assignment: The embedding service.
        scope: What the calls of the evaluation share.
        texts: The texts.
    """
    stub = EmbeddingServiceStub(assignment.judge.channel)

    # A repeated call that succeeds leaves nothing for which the evaluation would be repeated.
    repeated = replace(scope, failures=[])

    async def embed(request: EmbedRequest, factor: float) -> EmbedResponse | EmbedFailure:
        longer = replace(repeated, timeouts=replace(scope.timeouts, judge=factor * scope.timeouts.judge))
        answer = await ask(assignment, longer, stub.Embed, request, EmbedResponse)
        if isinstance(answer, Failure):
            return EmbedFailure(answer.explanation, answer.reason == ABSTAIN_REASON_TIMED_OUT)
        return answer

    found = await embed_texts(embed, texts, assignment.model)
    if found.failure:
        scope.failures.extend(repeated.failures)
    return found
