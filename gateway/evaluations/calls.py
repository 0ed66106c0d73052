"""Calls to judges: each takes a slot of the judge, has a timeout, and returns its failure."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import Provenance, Usage
from dramaturg.service import context
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
from gateway.evaluations.metrics import count_judge_call
from gateway.judges import pending_calls
from gateway.judges.registry import Judge
from gateway.judges.selection import JudgeAssignment
from gateway.settings import VersionPolicy

Answer = TypeVar("Answer")
Response = TypeVar("Response", bound=Message)


class SeenIdentity(NamedTuple):
    """The identity of a judge as it was before a call."""

    role: str
    judge: str
    name: str
    version: str
    expected: str
    """The expected version. Empty: any."""
    deviation: str
    """How the version deviates from the expected one. Empty: it does not."""
    reaction: VersionPolicy


_noted: ContextVar[list[Failure] | None] = ContextVar("noted_failures", default=None)
_spent: ContextVar[list[Usage] | None] = ContextVar("noted_usage", default=None)
_seen: ContextVar[set[SeenIdentity] | None] = ContextVar("noted_identities", default=None)


@contextmanager
def noted_failures() -> Iterator[list[Failure]]:
    """Collects the failures of judges within a ``with`` block and in the tasks that it starts.

    A result states the reasons as text; the failures tell whether a retry may help.
    """
    noted: list[Failure] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def note_failures(failures: Iterable[Failure]) -> None:
    """Adds failures to those that the enclosing ``noted_failures`` collects."""
    if (noted := _noted.get()) is not None:
        noted.extend(failures)


@contextmanager
def noted_usage() -> Iterator[list[Usage]]:
    """Collects the usage of the answers of judges within a ``with`` block and in the tasks that it starts.

    An evaluation that fails or is cancelled has no result; what its answers cost is known from them alone.
    An enclosing block receives the usage when the block ends.
    """
    spent: list[Usage] = []
    enclosing = _spent.get()
    token = _spent.set(spent)
    try:
        yield spent
    finally:
        _spent.reset(token)
        if enclosing is not None:
            enclosing.extend(spent)


@contextmanager
def noted_identities() -> Iterator[set[SeenIdentity]]:
    """Collects the identities of the judges that are called within a ``with`` block and in its tasks.

    An identity that is not cached is fetched before a call.
    """
    noted: set[SeenIdentity] = set()
    token = _seen.set(noted)
    try:
        yield noted
    finally:
        _seen.reset(token)


@contextmanager
def unnoted() -> Iterator[None]:
    """Keeps the calls within a ``with`` block, and in the tasks that it starts, out of all collections.

    Neither failures, usage, identities nor waits of a shadow concern the evaluation that it is part of.
    """
    tokens = [(variable, variable.set(None)) for variable in (_noted, _spent, _seen)]
    try:
        with pending_calls.unnoted():
            yield
    finally:
        for variable, token in tokens:
            variable.reset(token)  # type: ignore[arg-type] # the token is the variable's own


@dataclass(frozen=True)
class Timeouts:
    """The timeouts of judges, in seconds."""

    judge: float
    """The timeout from the call to the first answer, and from each answer to the next."""
    gold_answer: float
    """The timeout of the gold answer; at most half of the time left."""
    reserve: float
    """The time reserved for sending the result; at most a tenth of the time left."""

    def left(self) -> float | None:
        """The time left for the evaluation in the current call; None without a deadline."""
        remaining = context.remaining()
        return None if remaining is None else remaining - min(self.reserve, remaining / 10)

    def for_gold_answer(self) -> float:
        """The timeout of the gold answer: at most half of the time left, for judges to use the other half."""
        left = self.left()
        return self.gold_answer if left is None else min(self.gold_answer, left / 2)


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
    return options


async def call_judge(
    judge: Judge,
    call: Callable[[float], Awaitable[Answer]],
    *,
    left: float | None,
    longest: float,
) -> Answer | Failure:
    """Calls a judge when a slot is free; returns a failure in place of raising it.

    The answer is within the limits of ``gateway.evaluations.judge_answers``.

    Args:
        judge: The judge whose slot is taken.
        call: Makes the call with a timeout in seconds.
        left: The limit of waiting and calling together, in seconds. None: no limit.
        longest: The timeout of the call alone, in seconds, unless the judge has one of its own.
    """
    longest = judge.timeout(longest)
    begun = time.perf_counter()

    async def work(limit: asyncio.Timeout) -> Answer | Failure:
        answer = await call(_restart(limit, limit.when(), longest))
        identity = judge.identity.known
        if (provenance := provenance_of(answer)) is not None:
            if states_other(provenance, identity):
                judge.identity.doubt()
            mark_version(provenance, judge.deviation)
        fits = limit_response(answer, judge.role, identity)
        if not fits:
            judge.quarantine.record("its answer is too large")
        _note_usage(answer)
        if not fits:
            return too_large()
        broken = empty_breach(answer, judge.role)
        return broken_contract(broken) if broken else answer

    answered = await _in_slot(judge, work, left)
    record_answer(judge, answered if isinstance(answered, Failure) else None, begun)
    return answered


async def read_judge(
    judge: Judge,
    stream: Callable[[], AsyncGenerator[Answer]],
    take: Callable[[Answer], None],
    *,
    left: float | None,
    longest: float,
) -> Failure | None:
    """Reads a stream of answers of a judge when a slot is free.

    Args:
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
                _note_usage(answer)
                _restart(limit, ends, longest)

    return await _in_slot(judge, work, left)


def record_answer(judge: Judge, failure: Failure | None, begun: float, *, noted: bool = True) -> None:
    """Counts a call to a judge, and records its failure for ``noted_failures``.

    Args:
        judge: The judge.
        failure: The failure; None after an answer.
        begun: The start of the call, on the clock of ``time.perf_counter``.
        noted: Whether ``noted_failures`` gets the failure.
    """
    seconds = time.perf_counter() - begun
    count_judge_call(judge.role.name, judge.name, None if failure is None else failure.reason, seconds)
    failures = _noted.get()
    if noted and failure is not None and failures is not None:
        failures.append(failure._replace(judge=f"{judge.role.name} {judge.name!r}"))


async def ask(
    assignment: JudgeAssignment, timeouts: Timeouts, method: Any, request: Message, answer: type[Response]
) -> Response | Failure:
    """Calls a method of an assignment's judge within the time left.

    Args:
        assignment: The assignment of the judge.
        timeouts: The timeouts of judges.
        method: The method of a stub on the judge's channel.
        request: The request of the method.
        answer: The type of the response.

    Returns:
        The response, or the failure of the call. A response that does not parse is empty.
    """

    async def call(timeout: float) -> Response:
        response: Response | None = await method(request, timeout=timeout)
        # gRPC returns None where the bytes do not parse as the response.
        return answer() if response is None else response

    return await call_judge(assignment.judge, call, left=timeouts.left(), longest=timeouts.judge)


async def _in_slot(
    judge: Judge, work: Callable[[asyncio.Timeout], Awaitable[Answer]], left: float | None
) -> Answer | Failure:
    """Runs work in a slot of a judge, within the time left; returns the failure of the call.

    Attempts of a judge that has retries share the timeout of the call.
    """
    try:
        async with asyncio.timeout(left) as limit, judge.slots:
            for attempt in itertools.count(1):
                if (refused := await refusal(judge)) is not None:
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


async def refusal(judge: Judge) -> Failure | None:
    """Why a judge is not called: quarantine, or its version. None: it may be called. Notes its identity."""
    if judge.quarantine.reason:
        return quarantined(judge.quarantine.reason)
    seen, expected = _seen.get(), judge.entry.expect_version
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


def _note_usage(answer: Any) -> None:
    spent = _spent.get()
    if spent is None:
        return
    # Streams of judges yield candidates with their responses.
    response = answer[-1] if isinstance(answer, tuple) else answer
    provenance = getattr(getattr(response, "assessment", response), "provenance", None)
    if isinstance(provenance, Provenance):
        spent.append(provenance.usage)


def _restart(limit: asyncio.Timeout, ends: float | None, longest: float) -> float:
    """Reschedules a limit to ``longest`` seconds from now, at most to ``ends``; returns the seconds left."""
    now = asyncio.get_running_loop().time()
    if ends is None or ends - now > longest:
        limit.reschedule(now + longest)
        return longest
    limit.reschedule(ends)
    return ends - now
