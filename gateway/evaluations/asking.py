"""Asks the judge of a seat one thing."""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import Message

from gateway.evaluations.calls import Patience, call_judge
from gateway.evaluations.failures import Failure
from gateway.judges.selection import Seat

Answer = TypeVar("Answer", bound=Message)


async def ask(
    seat: Seat, patience: Patience, method: Any, request: Message, answer: type[Answer]
) -> Answer | Failure:
    """Calls a method of a seat's judge within the time left.

    Args:
        seat: Whose judge is asked.
        patience: How long to wait.
        method: The method of a stub on the judge's channel.
        request: What it is asked.
        answer: The type of its answer.

    Returns:
        The answer, one without content where it is not of the contract's form; or why there is none.
    """

    async def call(timeout: float) -> Answer:
        response: Answer | None = await method(request, timeout=timeout)
        # gRPC hands over None where the bytes do not parse as the response.
        return answer() if response is None else response

    return await call_judge(seat.judge, call, left=patience.left(), longest=patience.judge)
