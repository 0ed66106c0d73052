"""RunService: decodes requests, calls the store and the engine, encodes responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import grpc

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1 import run_service_pb2_grpc
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_OUTCOME_CANCELLED,
    RUN_STATE_CANCELLED,
    RUN_STATE_PAUSED,
    RUN_STATE_RUNNING,
)
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.service.auth.caller import tenant_of
from dramaturg.service.errors import invalid
from dramaturg.service.threads import TenantThreads
from gateway.evaluations.statistics import call_service
from gateway.judges.registry import Registry
from gateway.processes.pool import ProcessPool, no_answer
from gateway.runs.datasets import DatasetAccess, check_dataset
from gateway.runs.notifications import ChangeNotifier
from gateway.runs.records import ACTIVE, RunRecord
from gateway.runs.service import results
from gateway.runs.service.changes import Engine, RunChanges, check_spec
from gateway.runs.service.comparison import compare_runs, measure_judge_agreement
from gateway.runs.service.event_stream import Waits, watch
from gateway.runs.service.messages import RunLookup
from gateway.runs.service.pages import RunPages
from gateway.runs.service.preflight import Preflight
from gateway.runs.service.report_cache import ReportCache
from gateway.runs.store import RunStore
from gateway.runs.store_calls import ServiceCaller
from gateway.runs.uploads import ready_dataset

ServicerContext = grpc.aio.ServicerContext[Any, Any]


class RunServicer(run_service_pb2_grpc.RunServiceServicer):
    """``evaluation.v1.RunService``.

    Args:
        store: The run store.
        engine: Executes runs.
        registry: The registered judges.
        access: The datasets that may be read.
        notifier: Notifies the engine and the streams in this process of changes.
        preflight: Checks runs before they are created. None: they are not checked.
        waits: Returns the rate limits that model calls wait for. None: streams do not tell them.
        threads: The threads of long calls. None: new ones.
        processes: The processes that read whole runs. None: threads do.
        has_other_calls: Whether tenants other than the given one make calls.
    """

    def __init__(
        self,
        store: RunStore,
        engine: Engine,
        registry: Registry,
        access: DatasetAccess,
        notifier: ChangeNotifier | None = None,
        preflight: Preflight | None = None,
        waits: Waits | None = None,
        threads: TenantThreads | None = None,
        processes: ProcessPool | None = None,
        has_other_calls: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._store = store
        self._registry = registry
        self._access = access
        self._preflight = preflight
        self._waits = waits
        self._notifier = notifier or ChangeNotifier()
        self._processes = processes or ProcessPool(0)
        heavy_threads = threads or TenantThreads()
        self._caller = ServiceCaller(heavy_threads)
        self._lookup = RunLookup(store, self._caller)
        self._pages = RunPages(store, self._caller, has_other_calls)
        self._reports = ReportCache(heavy_threads)
        self._changes = RunChanges(store, engine, self._caller, self._lookup, self._notifier)

    def close(self) -> None:
        """Ends the threads of store calls."""
        self._caller.close()

    async def _answer(self, question: bytes) -> bytes:
        return await call_service(self._registry, question)

    async def CreateRun(self, request: pb.CreateRunRequest, context: ServicerContext) -> pb.CreateRunResponse:
        check_spec(request.spec, self._registry)
        tenant = tenant_of(context)
        check_dataset(request.spec.dataset, self._access.of(tenant))
        if dataset_id := request.spec.dataset.dataset_id:
            await self._caller.call(ready_dataset, self._store, dataset_id, tenant)
        if self._preflight is not None:
            await self._preflight.check(request.spec)
        run = await self._changes.create(request, tenant)
        return pb.CreateRunResponse(run=await self._lookup.describe(run))

    async def GetRun(self, request: pb.GetRunRequest, context: ServicerContext) -> pb.GetRunResponse:
        return pb.GetRunResponse(run=await self._lookup.get(request.run_id, tenant_of(context)))

    async def ListRuns(self, request: pb.ListRunsRequest, context: ServicerContext) -> pb.ListRunsResponse:
        return await self._pages.runs(request, tenant_of(context))

    async def UpdateRun(self, request: pb.UpdateRunRequest, context: ServicerContext) -> pb.UpdateRunResponse:
        run = await self._changes.update(await self._find(request.run_id, context), request)
        return pb.UpdateRunResponse(run=await self._lookup.describe(run))

    async def PauseRun(self, request: pb.PauseRunRequest, context: ServicerContext) -> pb.PauseRunResponse:
        found = await self._find(request.run_id, context)
        run = await self._changes.change_state(found, RUN_STATE_PAUSED, {RUN_STATE_RUNNING}, "is running")
        return pb.PauseRunResponse(run=await self._lookup.describe(run))

    async def ResumeRun(self, request: pb.ResumeRunRequest, context: ServicerContext) -> pb.ResumeRunResponse:
        found = await self._find(request.run_id, context)
        run = await self._changes.change_state(found, RUN_STATE_RUNNING, {RUN_STATE_PAUSED}, "is paused")
        return pb.ResumeRunResponse(run=await self._lookup.describe(run))

    async def CancelRun(self, request: pb.CancelRunRequest, context: ServicerContext) -> pb.CancelRunResponse:
        found = await self._find(request.run_id, context)
        run = await self._changes.change_state(
            found, RUN_STATE_CANCELLED, ACTIVE, "has not ended", RUN_OUTCOME_CANCELLED
        )
        return pb.CancelRunResponse(run=await self._lookup.describe(run))

    async def RerunSamples(
        self, request: pb.RerunSamplesRequest, context: ServicerContext
    ) -> pb.RerunSamplesResponse:
        found = await self._find(request.run_id, context)
        run = await self._changes.begin_again(found, request.scope, fresh=request.fresh)
        return pb.RerunSamplesResponse(run=await self._lookup.describe(run))

    async def ExtendRun(self, request: pb.ExtendRunRequest, context: ServicerContext) -> pb.ExtendRunResponse:
        found = await self._find(request.run_id, context)
        run = await self._changes.extend(found, request.models)
        return pb.ExtendRunResponse(run=await self._lookup.describe(run))

    async def DeleteRun(self, request: pb.DeleteRunRequest, context: ServicerContext) -> pb.DeleteRunResponse:
        await self._changes.delete(await self._find(request.run_id, context))
        return pb.DeleteRunResponse()

    async def WatchRun(
        self, request: pb.WatchRunRequest, context: ServicerContext
    ) -> AsyncGenerator[pb.WatchRunResponse]:
        """Streams what happens to the run."""
        events = watch(
            request.run_id,
            tenant_of(context),
            request.cursor,
            self._store,
            self._caller,
            self._notifier,
            self._waits,
        )
        async with aclosing(events):
            async for event in events:
                yield event

    async def ListSamples(
        self, request: pb.ListSamplesRequest, context: ServicerContext
    ) -> pb.ListSamplesResponse:
        """Lists samples."""
        return await self._pages.samples(await self._find(request.run_id, context), request)

    async def ListResults(
        self, request: pb.ListResultsRequest, context: ServicerContext
    ) -> pb.ListResultsResponse:
        """Lists judgements."""
        return await self._pages.results(await self._find(request.run_id, context), request)

    async def GetSummary(
        self, request: pb.GetSummaryRequest, context: ServicerContext
    ) -> pb.GetSummaryResponse:
        """Summarises the finished samples."""
        run = await self._find(request.run_id, context)
        found = await self._processes.result(
            run.tenant, self._answer, results.summarize, run, request.options, self._store
        )
        return pb.GetSummaryResponse(summary=Summary.FromString(found), final=run.state not in ACTIVE)

    async def CompareRuns(
        self, request: pb.CompareRunsRequest, context: ServicerContext
    ) -> pb.CompareRunsResponse:
        """Compares runs of the caller's tenant."""
        runs = await self._different(request.run_ids, context)
        found = await self._processes.result(
            runs[0].tenant, self._answer, compare_runs, request, [run.id for run in runs], self._store
        )
        return pb.CompareRunsResponse.FromString(found)

    async def MeasureJudgeAgreement(
        self, request: pb.MeasureJudgeAgreementRequest, context: ServicerContext
    ) -> pb.MeasureJudgeAgreementResponse:
        """Measures the agreement of judges with each other."""
        runs = await self._different(request.run_ids, context)
        ids = [run.id for run in runs]
        found = await self._processes.result(
            runs[0].tenant, self._answer, measure_judge_agreement, request, ids, self._store
        )
        return pb.MeasureJudgeAgreementResponse.FromString(found)

    async def GetLeaderboard(
        self, request: pb.GetLeaderboardRequest, context: ServicerContext
    ) -> pb.GetLeaderboardResponse:
        """Ranks the models."""
        run = await self._find(request.run_id, context)
        found = await self._processes.result(run.tenant, no_answer, results.rank, run, request, self._store)
        return pb.GetLeaderboardResponse.FromString(found)

    async def ExportResults(
        self, request: pb.ExportResultsRequest, context: ServicerContext
    ) -> AsyncGenerator[pb.ExportResultsResponse]:
        """Streams the judgements as one file."""
        run = await self._find(request.run_id, context)
        pieces = self._processes.stream(run.tenant, no_answer, results.export, run.id, request, self._store)
        async with aclosing(pieces) as chunks:
            async for chunk in chunks:
                yield pb.ExportResultsResponse(chunk=chunk)

    async def GetReport(
        self, request: pb.GetReportRequest, context: ServicerContext
    ) -> AsyncGenerator[pb.GetReportResponse]:
        """Streams the report."""
        run = await self._find(request.run_id, context)
        key = (run.id, run.cursor, request.sample_limit)

        def build() -> AsyncGenerator[bytes]:
            return self._processes.stream(
                run.tenant, self._answer, results.report, run, request.sample_limit, self._store
            )

        async with aclosing(self._reports.pieces(run.tenant, key, build)) as chunks:
            async for chunk in chunks:
                yield pb.GetReportResponse(chunk=chunk)

    async def _different(self, run_ids: Sequence[str], context: ServicerContext) -> list[RunRecord]:
        if len(set(run_ids)) < len(run_ids):
            raise invalid("run_ids", "names a run twice")
        return [await self._find(run_id, context) for run_id in run_ids]

    async def _find(self, run_id: str, context: ServicerContext) -> RunRecord:
        return await self._lookup.find(run_id, tenant_of(context))
