"""How long a call to a judge may take, and how many of them go at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.judge.roles import Role
from dramaturg.service import context
from gateway.evaluations.failures import Failure, of_error, timed_out
from gateway.evaluations.metrics import count_judge_call
from gateway.judges.registry import Judge
from gateway.judges.selection import JudgeAssignment

Answer = TypeVar("Answer")
Response = TypeVar("Response", bound=Message)

_noted: ContextVar[list[Failure] | None] = ContextVar("noted_failures", default=None)


@contextmanager
def noted_failures() -> Iterator[list[Failure]]:
    """Collects the calls to judges that fail within a ``with`` block, tasks begun there included.

    A result says in words why something is missing. Whoever wants to know whether trying again is worth it
    looks here.
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
    """The longest wait for one answer, from when the judge is asked."""
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
    answered = await _ask(judge, call, left, longest)
    failure = answered if isinstance(answered, Failure) else None
    seconds = time.perf_counter() - begun
    count_judge_call(judge.role.name, judge.name, None if failure is None else failure.reason, seconds)
    noted = _noted.get()
    if failure is not None and noted is not None:
        noted.append(failure._replace(judge=f"{judge.role.name} {judge.name!r}"))
    return answered


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


async def _ask(
    judge: Judge, call: Callable[[float], Awaitable[Answer]], left: float | None, longest: float
) -> Answer | Failure:
    role: Role = judge.role
    try:
        async with asyncio.timeout(left) as limit, judge.slots:
            now = asyncio.get_running_loop().time()
            ends = limit.when()
            if ends is None or ends - now > longest:
                ends = now + longest
                limit.reschedule(ends)
            return await call(ends - now)
    except TimeoutError:
        return timed_out()
    except grpc.aio.AioRpcError as error:
        return of_error(error, role)
