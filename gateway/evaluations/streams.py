"""Runs an evaluation and streams its events."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.service.telemetry import instruments
from gateway.evaluations.metrics import count_result


class Emit(Protocol):
    """Hands on one event; never waits."""

    def __call__(self, **event: Message) -> None:
        """Takes the event under the name that it has in the stream's message."""


class Evaluation(ABC):
    """An evaluation that is planned. A subclass does it; here it is followed, or not, and counted.

    Args:
        response: Makes the message of the method's stream of an event by its name.
        accepted: Makes the event that states the plan.
    """

    def __init__(self, response: Callable[..., Any], accepted: Callable[[], EvaluationAccepted]) -> None:
        self._response = response
        self._accepted = accepted

    @abstractmethod
    async def work(self, emit: Emit) -> Any:
        """Does it and returns its result.

        Args:
            emit: Hands on what happens until then.
        """

    async def result(self) -> Any:
        """Runs it and returns only its result. Cancelling it cancels the calls to judges."""
        return _counted(await self.work(_tell_nobody))

    async def events(self) -> AsyncGenerator[Any]:
        """Yields that it was accepted, then each event as it comes, then the result.

        Closing it, or cancelling its consumer, cancels the calls to the judges.

        Raises:
            Exception: An error of the work, after the events before it.
        """
        response = self._response
        yield response(accepted=self._accepted())
        events: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.create_task(self.work(lambda **event: events.put_nowait(response(**event))))
        # Also after a failure, so that consumers waiting for an event receive it.
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield response(result=_counted(await task))
        finally:
            task.cancel()


def _tell_nobody(**event: Message) -> None:
    del event


def _counted(result: Any) -> Any:
    if instruments.counting():
        count_result(result)
    return result
