"""Calls to judges: each takes a slot of the judge, has a limited time, and returns its failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.service import context
from dramaturg.service.errors import from_rpc_error
from gateway.evaluations.failures import Failure, of_error, timed_out
from gateway.evaluations.metrics import count_judge_call
from gateway.judges.registry import Judge
from gateway.judges.selection import JudgeAssignment

Answer = TypeVar("Answer")
Response = TypeVar("Response", bound=Message)

_noted: ContextVar[list[Failure] | None] = ContextVar("noted_failures", default=None)


@contextmanager
def noted_failures() -> Iterator[list[Failure]]:
    """Collects the failures of judges within a ``with`` block, tasks begun there included.

    A result has the reasons in words; the failures tell whether another attempt may help.
    """
    noted: list[Failure] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


@dataclass(frozen=True)
class Timeouts:
    """How long to wait for judges. All in seconds."""

    judge: float
    """The longest wait for an answer: from the call to the first one, and from each one to the next."""
    gold_answer: float
    """The longest wait for the gold answer; never more than half of the time left."""
    reserve: float
    """What is kept of the time left to send the result; never more than a tenth of it."""

    def left(self) -> float | None:
        """The time left for work on the call that is being served; None without a deadline."""
        remaining = context.remaining()
        return None if remaining is None else remaining - min(self.reserve, remaining / 10)

    def for_gold_answer(self) -> float:
        """The time for the gold answer: the judges that compare with it keep the other half."""
        left = self.left()
        return self.gold_answer if left is None else min(self.gold_answer, left / 2)


class Request(Protocol):
    """What every request for an evaluation has."""

    @property
    def options(self) -> JudgeOptions:
        """How the judges work."""


def judge_options(assignment: JudgeAssignment, request: Request) -> JudgeOptions:
    """How the judge of an assignment works on a request."""
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
    """Calls a judge when it has a free slot; a failure is returned, not raised.

    Args:
        judge: The judge whose slot is taken.
        call: Makes the call, with the most seconds it may take.
        left: The time left for waiting and calling together, in seconds, or None.
        longest: The most seconds for the call itself.
    """
    begun = time.perf_counter()

    async def work(limit: asyncio.Timeout) -> Answer:
        return await call(_restart(limit, limit.when(), longest))

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
    """Reads the answers of a judge as they come, when it has a free slot.

    Args:
        judge: The judge whose slot is taken.
        stream: Makes the call and yields its answers.
        take: Takes each answer; it does not raise.
        left: The time left for waiting and reading together, in seconds, or None.
        longest: The most seconds from the call to the first answer, and from each answer to the next.

    Returns:
        Why the stream broke off; None where it came to its end.
    """

    async def work(limit: asyncio.Timeout) -> None:
        ends = limit.when()
        _restart(limit, ends, longest)
        async with aclosing(stream()) as answers:
            async for answer in answers:
                take(answer)
                _restart(limit, ends, longest)

    return await _in_slot(judge, work, left)


def record_answer(judge: Judge, failure: Failure | None, begun: float) -> None:
    """Counts an answer of a judge, and notes a failure for ``noted_failures``.

    Args:
        judge: The judge.
        failure: Why there is no answer; None where there is one.
        begun: When it was asked, on the clock of ``time.perf_counter``.
    """
    seconds = time.perf_counter() - begun
    count_judge_call(judge.role.name, judge.name, None if failure is None else failure.reason, seconds)
    noted = _noted.get()
    if failure is not None and noted is not None:
        noted.append(failure._replace(judge=f"{judge.role.name} {judge.name!r}"))


async def ask(
    assignment: JudgeAssignment, timeouts: Timeouts, method: Any, request: Message, answer: type[Response]
) -> Response | Failure:
    """Calls a method of an assignment's judge within the time left.

    Args:
        assignment: Whose judge is asked.
        timeouts: How long to wait.
        method: The method of a stub on the judge's channel.
        request: What it is asked.
        answer: The type of its answer.

    Returns:
        The answer, one without content where it is not of the contract's form; or why there is none.
    """

    async def call(timeout: float) -> Response:
        response: Response | None = await method(request, timeout=timeout)
        # gRPC hands over None where the bytes do not parse as the response.
        return answer() if response is None else response

    return await call_judge(assignment.judge, call, left=timeouts.left(), longest=timeouts.judge)


async def _in_slot(
    judge: Judge, work: Callable[[asyncio.Timeout], Awaitable[Answer]], left: float | None
) -> Answer | Failure:
    """Does work in a slot of a judge, within the time left; what fails in the call is returned."""
    try:
        async with asyncio.timeout(left) as limit, judge.slots:
            return await work(limit)
    except TimeoutError:
        return timed_out()
    except grpc.aio.AioRpcError as error:
        return of_error(from_rpc_error(error), judge.role)


def _restart(limit: asyncio.Timeout, ends: float | None, longest: float) -> float:
    """Reschedules a limit to ``longest`` seconds from now, at most its end; returns the seconds left."""
    now = asyncio.get_running_loop().time()
    if ends is None or ends - now > longest:
        limit.reschedule(now + longest)
        return longest
    limit.reschedule(ends)
    return ends - now
