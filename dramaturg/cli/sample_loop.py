"""Evaluates rows: so many at once, each one's result written and counted as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.datasets import Row
from dramaturg.results.files import ResultWriter
from dramaturg.service.errors import ServiceError
from dramaturg.summaries.samples import SampleAggregator

Request = TypeVar("Request", bound=Message)
Evaluate = Callable[[Request], AsyncGenerator[Any]]
"""Yields the events of an evaluation, the result last (a method of ``dramaturg.client.DramaturgClient``)."""


class Watcher(Protocol):
    """Is told what happens."""

    def happened(self, event: Any) -> None:
        """An event has come that is not the result."""

    def finished(self, aggregator: SampleAggregator[Any]) -> None:
        """A sample has ended, with a result or without."""


async def evaluate_rows(
    evaluate: Evaluate[Request],
    rows: Iterable[Row[Request]],
    writer: ResultWriter,
    aggregator: SampleAggregator[Any],
    watcher: Watcher,
    *,
    concurrency: int,
) -> None:
    """Evaluates every row. A sample that fails is written and counted as such; the others go on.

    Args:
        evaluate: Evaluates a request.
        rows: The rows, checked.
        writer: Writes what comes of them.
        aggregator: Counts it.
        watcher: Is told of it.
        concurrency: How many samples are evaluated at once.
    """
    source = enumerate(rows)

    async def work() -> None:
        while True:
            await writer.admit()
            index, row = next(source, (0, None))
            if row is None:
                return
            try:
                result = await _evaluate(evaluate, row.request, watcher)
            except ServiceError as error:
                aggregator.add_failure()
                writer.add_error(index, row, error)
            else:
                aggregator.add(result)
                writer.add_result(index, result)
            watcher.finished(aggregator)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())


async def _evaluate(evaluate: Evaluate[Request], request: Request, watcher: Watcher) -> Any:
    result: Message | None = None
    async with aclosing(evaluate(request)) as events:
        # To the very end: a call that is left before it is over is a cancelled one.
        async for event in events:
            if event.HasField("result"):
                result = event.result
            else:
                watcher.happened(event)
    if result is not None:
        return result
    raise ServiceError(
        grpc.StatusCode.INTERNAL,
        error_reason_pb2.ERROR_REASON_UNSPECIFIED,
        "the gateway ended the evaluation without a result",
    )
