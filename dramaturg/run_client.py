"""The client of RunService: durable evaluations of datasets."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import (
    Run,
    RunBudget,
    RunLimits,
    RunSample,
    RunSpec,
    RunState,
    SampleState,
)
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions
from dramaturg.results.frames import ResultStream
from dramaturg.service.errors import ServiceError, from_rpc_error

ENDED = frozenset(
    {
        run_pb2.RUN_STATE_SUCCEEDED,
        run_pb2.RUN_STATE_PARTIAL,
        run_pb2.RUN_STATE_FAILED,
        run_pb2.RUN_STATE_CANCELLED,
    }
)
"""The terminal states of a run."""
MAX_RECONNECT_SECONDS = 10.0
"""The longest wait between two attempts to reconnect."""

_TRANSIENT = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED}
)

Response = TypeVar("Response")


def _is_cut(error: ServiceError) -> bool:
    """Whether a proxy ended a stream: gRPC calls that INTERNAL, and a gateway's own errors have a reason."""
    return (
        error.code is grpc.StatusCode.INTERNAL and error.reason == error_reason_pb2.ERROR_REASON_UNSPECIFIED
    )


class RunClient:
    """The runs of a gateway (``evaluation.v1.RunService``); ``DramaturgClient.runs`` is one.

    Each method raises ``ServiceError``: NOT_FOUND for a run that does not exist, FAILED_PRECONDITION for a
    run in another state than the method requires, INVALID_ARGUMENT with all violations.

    Example:
        >>> async with DramaturgClient("localhost:50051") as client:
        ...     run = await client.runs.create(spec)
        ...     async for event in client.runs.watch(run.id):
        ...         progress = event.run.progress if event.HasField("run") else event.progress
        ...         print(progress.succeeded_count, "of", progress.sample_count)

    Args:
        channel: The channel to the gateway.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = RunServiceStub(channel)

    async def create(self, spec: RunSpec, *, request_id: str = "") -> Run:
        """Creates a run. Its dataset is read after the call returns.

        Args:
            spec: The specification.
            request_id: A UUID4 that makes the call idempotent: a second call with it and the same spec
                returns the existing run.
        """
        request = pb.CreateRunRequest(spec=spec, request_id=request_id)
        return (await answer(self._stub.CreateRun(request))).run

    async def get(self, run_id: str) -> Run:
        """Returns a run with its progress."""
        return (await answer(self._stub.GetRun(pb.GetRunRequest(run_id=run_id)))).run

    def find(
        self, states: Sequence[RunState.ValueType] = (), labels: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Run]:
        """Yields runs, the newest first.

        Args:
            states: Only runs in these states. Empty: all.
            labels: Only runs with all of these labels.
        """
        request = pb.ListRunsRequest(states=states, labels=labels)
        return pages(self._stub.ListRuns, request, "runs")

    async def update(
        self,
        run_id: str,
        *,
        limits: RunLimits | None = None,
        budget: RunBudget | None = None,
        update_mask: Sequence[str] = (),
    ) -> Run:
        """Changes the limits and the budget of a run, in any state.

        Args:
            run_id: The run.
            limits: The new limits.
            budget: The new budget.
            update_mask: The fields that are set, for example "limits" or "budget.max_cost_usd"; a named field
                that has no value is cleared. Empty: the fields that have a value. All others are unchanged.

        Raises:
            ServiceError: INVALID_ARGUMENT: the mask names an unknown field.
        """
        mask = FieldMask(paths=update_mask) if update_mask else None
        request = pb.UpdateRunRequest(run_id=run_id, limits=limits, budget=budget, update_mask=mask)
        return (await answer(self._stub.UpdateRun(request))).run

    async def pause(self, run_id: str) -> Run:
        """Pauses a running run: no further sample is started, samples in progress are finished."""
        return (await answer(self._stub.PauseRun(pb.PauseRunRequest(run_id=run_id)))).run

    async def resume(self, run_id: str) -> Run:
        """Resumes a paused run."""
        return (await answer(self._stub.ResumeRun(pb.ResumeRunRequest(run_id=run_id)))).run

    async def cancel(self, run_id: str) -> Run:
        """Cancels a run. Calls in progress are cancelled; results are kept."""
        return (await answer(self._stub.CancelRun(pb.CancelRunRequest(run_id=run_id)))).run

    async def rerun(self, run_id: str, scope: pb.RerunScope.ValueType, *, fresh: bool = False) -> Run:
        """Begins a new attempt of an ended run for some of its samples.

        Args:
            run_id: The run.
            scope: The samples.
            fresh: Whether new completions are requested instead of those of the ledger.
        """
        request = pb.RerunSamplesRequest(run_id=run_id, scope=scope, fresh=fresh)
        return (await answer(self._stub.RerunSamples(request))).run

    async def extend(self, run_id: str, models: Sequence[str]) -> Run:
        """Adds models under test to an ended run and begins a new attempt."""
        request = pb.ExtendRunRequest(run_id=run_id, models=models)
        return (await answer(self._stub.ExtendRun(request))).run

    async def delete(self, run_id: str) -> None:
        """Deletes an ended run with its samples and results."""
        await answer(self._stub.DeleteRun(pb.DeleteRunRequest(run_id=run_id)))

    async def watch(
        self,
        run_id: str,
        cursor: int = 0,
        *,
        on_lost: Callable[[ServiceError], None] | None = None,
    ) -> AsyncGenerator[pb.WatchRunResponse]:
        """Yields the events of a run until it has ended, at least one every few seconds while it is running.

        The stream has no timeout. Reconnects without limit after a lost connection or a stream that a proxy
        ends, and continues from the last event. Permanent errors are raised.

        Args:
            run_id: The run.
            cursor: The cursor of the last event seen. 0: none.
            on_lost: Called whenever the gateway is unreachable.
        """
        pause = 0.0
        while True:
            request = pb.WatchRunRequest(run_id=run_id, cursor=cursor)
            try:
                async with aclosing(stream(self._stub.WatchRun, request, math.inf)) as events:
                    async for event in events:
                        cursor, pause = max(cursor, event.cursor), 0.0
                        yield event
                        if event.HasField("run") and event.run.state in ENDED:
                            return
                # A draining server ends its streams without an error.
                if (await self.get(run_id)).state in ENDED:
                    return
            except ServiceError as error:
                if error.code not in _TRANSIENT and not _is_cut(error):
                    raise
                if on_lost is not None and error.code is grpc.StatusCode.UNAVAILABLE:
                    on_lost(error)
            await asyncio.sleep(pause)
            pause = min(MAX_RECONNECT_SECONDS, pause * 2 or 0.2)

    def samples(self, run_id: str, states: Sequence[SampleState.ValueType] = ()) -> AsyncGenerator[RunSample]:
        """Yields samples with their results, by index; only those in ``states``, if any are given."""
        request = pb.ListSamplesRequest(run_id=run_id, states=states)
        return pages(self._stub.ListSamples, request, "samples")

    def results(
        self,
        run_id: str,
        where: pb.ResultFilter | None = None,
        *,
        numbers_only: bool = False,
        page_size: int = 0,
    ) -> ResultStream:
        """Returns the judgements by sample, for ``async for``, ``await to_arrow()`` or ``await to_pandas()``.

        Args:
            run_id: The run.
            where: Restricts the judgements. None: all.
            numbers_only: Whether rationale, findings and provenance are omitted.
            page_size: The judgements of one request. 0: the default of the server.
        """
        request = pb.ListResultsRequest(
            run_id=run_id, filter=where, numbers_only=numbers_only, page_size=page_size
        )
        return ResultStream(pages(self._stub.ListResults, request, "results"))

    async def summary(self, run_id: str, options: SummaryOptions | None = None) -> pb.GetSummaryResponse:
        """Returns the figures of a run, also while it goes on."""
        return await answer(self._stub.GetSummary(pb.GetSummaryRequest(run_id=run_id, options=options)))

    async def compare(self, request: pb.CompareRunsRequest) -> pb.CompareRunsResponse:
        """Compares runs of the same items with a baseline."""
        return await answer(self._stub.CompareRuns(request))

    async def judge_agreement(
        self, request: pb.MeasureJudgeAgreementRequest
    ) -> pb.MeasureJudgeAgreementResponse:
        """Measures how far the judges of a run, or several runs of the same items, agree with each other."""
        return await answer(self._stub.MeasureJudgeAgreement(request))

    async def leaderboard(
        self, run_id: str, measure: str = "", *, minimum_coverage: float | None = None
    ) -> pb.GetLeaderboardResponse:
        """Ranks the models of a run.

        Args:
            run_id: The run.
            measure: The measure. Empty: the primary one of the evaluation.
            minimum_coverage: Models judged on a smaller share, from 0 to 1, are unranked. None: 0.5.
        """
        request = pb.GetLeaderboardRequest(run_id=run_id, measure=measure, minimum_coverage=minimum_coverage)
        return await answer(self._stub.GetLeaderboard(request))

    async def export(
        self, run_id: str, form: pb.ExportFormat.ValueType, where: pb.ResultFilter | None = None
    ) -> AsyncGenerator[bytes]:
        """Yields the judgements of a run as one file, in pieces."""
        request = pb.ExportResultsRequest(run_id=run_id, format=form, filter=where)
        async with aclosing(stream(self._stub.ExportResults, request, math.inf)) as pieces:
            async for piece in pieces:
                yield piece.chunk

    async def report(self, run_id: str, *, sample_limit: int = 0) -> AsyncGenerator[bytes]:
        """Yields the report of a run, one HTML page, in pieces.

        Args:
            run_id: The run.
            sample_limit: The most samples in full. 0: the default of the server.
        """
        request = pb.GetReportRequest(run_id=run_id, sample_limit=sample_limit)
        async with aclosing(stream(self._stub.GetReport, request, math.inf)) as pieces:
            async for piece in pieces:
                yield piece.chunk


async def answer(call: Awaitable[Response]) -> Response:
    """Returns the response of a call; its failure is a ``ServiceError``."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


async def stream(method: Callable[..., Any], request: Any, timeout: float | None) -> AsyncGenerator[Any]:
    """Yields the responses of a streaming call; its failure is a ``ServiceError``.

    The call starts with the first response that is asked for. It is cancelled when the generator is closed.
    """
    call = method(request, timeout=timeout)
    try:
        async for response in call:
            yield response
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    finally:
        call.cancel()


async def pages(method: Callable[[Any], Any], request: Any, field: str) -> AsyncGenerator[Any]:
    """Yields what the pages of a list have in a field (AIP-158). The request is changed."""
    while True:
        page = await answer(method(request))
        for one in getattr(page, field):
            yield one
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
