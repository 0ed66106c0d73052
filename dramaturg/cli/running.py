"""Evaluates rows: so many at once, each one's result written and counted as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import (
    CandidateAssessment,
    EvaluateScriptsRequest,
    EvaluateScriptsResponse,
    ScriptsResult,
)
from dramaturg.cli.overrides import Overrides
from dramaturg.cli.results import ResultWriter
from dramaturg.cli.rows import RowFile
from dramaturg.cli.tally import Tally
from dramaturg.service.errors import ServiceError


class Client(Protocol):
    """What evaluates one request (``dramaturg.client.DramaturgClient``)."""

    def evaluate_scripts(
        self, request: EvaluateScriptsRequest, *, timeout: float | None = None
    ) -> AsyncGenerator[EvaluateScriptsResponse]:
        """Yields the events of an evaluation, the result last."""


class Watcher(Protocol):
    """Is told what happens."""

    def assessed(self, assessment: CandidateAssessment) -> None:
        """A judge has assessed a candidate."""

    def finished(self, tally: Tally) -> None:
        """A sample has ended, with a result or without."""


async def evaluate_rows(
    client: Client,
    rows: RowFile,
    overrides: Overrides,
    writer: ResultWriter,
    tally: Tally,
    watcher: Watcher,
    *,
    concurrency: int,
    timeout: float,
) -> None:
    """Evaluates every row. A sample that fails is written and counted as such; the others go on.

    Args:
        client: Evaluates a request.
        rows: The rows, checked.
        overrides: What the command line sets in each.
        writer: Writes what comes of them.
        tally: Counts it.
        watcher: Is told of it.
        concurrency: How many samples are evaluated at once.
        timeout: The most seconds for one sample.
    """
    source = enumerate(rows)

    async def work() -> None:
        while True:
            await writer.admit()
            index, row = next(source, (0, None))
            if row is None:
                return
            overrides.apply(row.request)
            try:
                result = await _evaluate(client, row.request, watcher, timeout)
            except ServiceError as error:
                tally.add_failure()
                writer.add_error(index, row, error)
            else:
                tally.add(result)
                writer.add_result(index, result)
            watcher.finished(tally)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())


async def _evaluate(
    client: Client, request: EvaluateScriptsRequest, watcher: Watcher, timeout: float
) -> ScriptsResult:
    async with aclosing(client.evaluate_scripts(request, timeout=timeout)) as events:
        async for event in events:
            if event.HasField("assessment"):
                watcher.assessed(event.assessment)
            elif event.HasField("result"):
                return event.result
    raise ServiceError(
        grpc.StatusCode.INTERNAL,
        error_reason_pb2.ERROR_REASON_UNSPECIFIED,
        "the gateway ended the evaluation without a result",
    )
