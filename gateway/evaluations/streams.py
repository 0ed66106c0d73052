"""Runs an evaluation and streams its events."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Protocol

from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.service.telemetry import events, instruments
from gateway.evaluations.events import emit_result
from gateway.evaluations.judge_answers import limit_result
from gateway.evaluations.metrics import Judgement, count_result, flat_judgements


class Emit(Protocol):
    """Publishes one event without waiting."""

    def __call__(self, **event: Message) -> None:
        """Publishes the event under its field name in the stream's message."""


class Evaluation(ABC):
    """A planned evaluation. A subclass implements ``work``; this class streams and counts it.

    Args:
        response: Makes a message of the method's stream from an event by name.
        accepted: Makes the event of the plan.
    """

    def __init__(self, response: Callable[..., Any], accepted: Callable[[], EvaluationAccepted]) -> None:
        self._response = response
        self._accepted = accepted

    @abstractmethod
    async def work(self, emit: Emit) -> Any:
        """Runs the evaluation and returns its result.

        Args:
            emit: Publishes the events before the result.
        """

    @staticmethod
    def judgements(result: Any) -> Iterable[Judgement]:
        """The judgements of a result that metrics count."""
        return flat_judgements(result)

    async def result(self) -> Any:
        """Runs the evaluation and returns its result. Cancellation cancels the calls to judges."""
        return self._counted(await self.work(_discard))

    async def events(self) -> AsyncGenerator[Any]:
        """Yields the accepted plan, then each event as it occurs, then the result.

        Closing the generator, or cancelling its consumer, cancels the calls to judges.

        Raises:
            Exception: The error of ``work``, after the events before it.
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
            yield response(result=self._counted(await task))
        finally:
            task.cancel()
            await asyncio.wait([task])

    def _counted(self, result: Any) -> Any:
        limit_result(result)
        if instruments.counting():
            count_result(result, self.judgements(result))
        if events.emitting():
            emit_result(result)
        return result


def _discard(**event: Message) -> None:
    del event
