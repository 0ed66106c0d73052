"""Evaluates rows concurrently and writes each result as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.run_pb2 import RunBudget
from dramaturg.cli.unavailable_models import check_first_error, check_first_result, is_judged
from dramaturg.client import final_result
from dramaturg.datasets import Row
from dramaturg.results.budgets import MIN_UNKNOWN_CALLS, budget_reached
from dramaturg.results.coverage import CoverageCounter
from dramaturg.results.files import ResultWriter
from dramaturg.service.errors import ServiceError
from dramaturg.summaries.samples import SampleAggregator

Request = TypeVar("Request", bound=Message)
Evaluate = Callable[[Request], AsyncGenerator[Any]]
"""Yields the events of an evaluation, the result last (a method of ``dramaturg.client.DramaturgClient``)."""


class Watcher(Protocol):
    """Receives events and ends of samples."""

    def happened(self, event: Any) -> None:
        """Receives an event other than the result."""

    def finished(self, aggregator: SampleAggregator[Any]) -> None:
        """Receives the end of a sample, with or without a result."""


async def evaluate_rows(
    evaluate: Evaluate[Request],
    rows: Iterable[Row[Request]],
    writer: ResultWriter,
    aggregator: SampleAggregator[Any],
    watcher: Watcher,
    coverage: CoverageCounter,
    *,
    concurrency: int,
    budget: RunBudget | None = None,
) -> str:
    """Evaluates every row. A sample that fails is written and counted as such; the others go on.

    The first sample is evaluated alone until it brings a judgement: where its models cannot be called, no
    other sample is started. With a budget it is evaluated alone to its end, and its usage must be known.

    Args:
        evaluate: Evaluates a request.
        rows: The rows, checked.
        writer: Writes results and errors.
        aggregator: Counts results and failures.
        watcher: Receives events and ends of samples.
        coverage: Counts judgements and their reasons.
        concurrency: The maximum number of concurrent samples.
        budget: The limits at which no further sample starts. None: there are none.

    Returns:
        The limit of the budget that was reached, or cannot be kept, with samples left. Empty: none.

    Raises:
        ModelsUnavailableError: The models of the first sample cannot be called. Its result is written.
    """
    source = enumerate(rows)
    models_answer = asyncio.Event()
    reached = ""

    def happened(event: Any) -> None:
        watcher.happened(event)
        if budget is None and not models_answer.is_set() and is_judged(event):
            models_answer.set()

    async def work(*, first: bool) -> None:
        nonlocal reached
        if not first:
            await models_answer.wait()
        while True:
            await writer.admit()
            limit = ""
            if budget is not None:
                # Of the first sample, every call must be known.
                least = 1 if aggregator.samples == 1 else MIN_UNKNOWN_CALLS
                limit = budget_reached(budget, aggregator.usage, least)
            index, row = next(source, (0, None))
            if row is None:
                return
            if limit:
                reached = limit
                return
            try:
                result = await final_result(evaluate(row.request), happened)
            except ServiceError as error:
                aggregator.add_failure()
                coverage.add_failure(error)
                writer.add_error(index, row, error)
                if not models_answer.is_set():
                    check_first_error(error)
            else:
                aggregator.add(result)
                coverage.add(result)
                writer.add_result(index, result)
                if not models_answer.is_set():
                    check_first_result(result)
            watcher.finished(aggregator)
            models_answer.set()

    tasks = [asyncio.ensure_future(work(first=number == 0)) for number in range(concurrency)]
    try:
        # The first to fail ends all, with its own error.
        for done in asyncio.as_completed(tasks):
            await done
            models_answer.set()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return reached
