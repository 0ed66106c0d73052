"""RunService: decode, ask the store, tell the engine, encode."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1 import run_service_pb2_grpc
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_CANCELLED, RUN_STATE_PAUSED, RUN_STATE_RUNNING
from gateway.judges.registry import Registry
from gateway.runs.datasets import DatasetAccess, check_dataset
from gateway.runs.engine.bells import Bells
from gateway.runs.records import ACTIVE, RunRecord
from gateway.runs.service import reading
from gateway.runs.service.background import Background
from gateway.runs.service.changing import Changes
from gateway.runs.service.creating import new_run
from gateway.runs.service.engine import Engine
from gateway.runs.service.finding import Finder
from gateway.runs.service.listing import Listing
from gateway.runs.service.tenancy import tenant_of
from gateway.runs.service.validation import check_spec
from gateway.runs.service.watching import watch
from gateway.runs.store.base import RunStore

ServicerContext = grpc.aio.ServicerContext[Any, Any]


class RunServicer(run_service_pb2_grpc.RunServiceServicer):
    """``evaluation.v1.RunService``.

    Args:
        store: Where runs are kept.
        engine: Who works on them.
        registry: The judges that runs may name.
        access: The datasets that may be read.
        bells: By which watchers in this process hear of news at once.
    """

    def __init__(
        self,
        store: RunStore,
        engine: Engine,
        registry: Registry,
        access: DatasetAccess,
        bells: Bells | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._access = access
        self._bells = bells or Bells()
        self._background = Background()
        self._finder = Finder(store, self._background)
        self._listing = Listing(store, self._background)
        self._changes = Changes(store, engine, self._background, self._finder, self._bells)

    def close(self) -> None:
        """Lets go of the threads in which the store is asked."""
        self._background.close()

    async def CreateRun(self, request: pb.CreateRunRequest, context: ServicerContext) -> pb.CreateRunResponse:
        """Keeps the run and has it worked on."""
        check_spec(request.spec, self._registry)
        check_dataset(request.spec.dataset, self._access)
        run = await self._changes.create(new_run(request, tenant_of(context)))
        return pb.CreateRunResponse(run=await self._finder.describe(run))

    async def GetRun(self, request: pb.GetRunRequest, context: ServicerContext) -> pb.GetRunResponse:
        """Tells where a run stands."""
        run = await self._find(request.run_id, context)
        return pb.GetRunResponse(run=await self._finder.describe(run))

    async def ListRuns(self, request: pb.ListRunsRequest, context: ServicerContext) -> pb.ListRunsResponse:
        """Lists runs, the newest first."""
        return await self._listing.runs(request, tenant_of(context))

    async def UpdateRun(self, request: pb.UpdateRunRequest, context: ServicerContext) -> pb.UpdateRunResponse:
        """Changes limits and budget, whatever the run's state."""
        run = await self._changes.update(await self._find(request.run_id, context), request)
        return pb.UpdateRunResponse(run=await self._finder.describe(run))

    async def PauseRun(self, request: pb.PauseRunRequest, context: ServicerContext) -> pb.PauseRunResponse:
        """Begins no further sample."""
        found = await self._find(request.run_id, context)
        run = await self._changes.change_state(found, RUN_STATE_PAUSED, {RUN_STATE_RUNNING}, "is running")
        return pb.PauseRunResponse(run=await self._finder.describe(run))

    async def ResumeRun(self, request: pb.ResumeRunRequest, context: ServicerContext) -> pb.ResumeRunResponse:
        """Goes on."""
        found = await self._find(request.run_id, context)
        run = await self._changes.change_state(found, RUN_STATE_RUNNING, {RUN_STATE_PAUSED}, "is paused")
        return pb.ResumeRunResponse(run=await self._finder.describe(run))

    async def CancelRun(self, request: pb.CancelRunRequest, context: ServicerContext) -> pb.CancelRunResponse:
        """Ends the run."""
        found = await self._find(request.run_id, context)
        run = await self._changes.change_state(found, RUN_STATE_CANCELLED, ACTIVE, "has not ended")
        return pb.CancelRunResponse(run=await self._finder.describe(run))

    async def RerunRun(self, request: pb.RerunRunRequest, context: ServicerContext) -> pb.RerunRunResponse:
        """Begins some samples anew."""
        found = await self._find(request.run_id, context)
        run = await self._changes.begin_again(found, request.scope, fresh=request.fresh)
        return pb.RerunRunResponse(run=await self._finder.describe(run))

    async def ExtendRun(self, request: pb.ExtendRunRequest, context: ServicerContext) -> pb.ExtendRunResponse:
        """Adds models under test."""
        found = await self._find(request.run_id, context)
        run = await self._changes.extend(found, request.models)
        return pb.ExtendRunResponse(run=await self._finder.describe(run))

    async def DeleteRun(self, request: pb.DeleteRunRequest, context: ServicerContext) -> pb.DeleteRunResponse:
        """Deletes the run."""
        await self._changes.delete(await self._find(request.run_id, context))
        return pb.DeleteRunResponse()

    async def WatchRun(
        self, request: pb.WatchRunRequest, context: ServicerContext
    ) -> AsyncGenerator[pb.WatchRunResponse]:
        """Streams what happens to the run."""
        run = await self._find(request.run_id, context)
        events = watch(run, request.cursor, self._store, self._background, self._bells)
        async with aclosing(events):
            async for event in events:
                yield event

    async def ListSamples(
        self, request: pb.ListSamplesRequest, context: ServicerContext
    ) -> pb.ListSamplesResponse:
        """Lists samples."""
        return await self._listing.samples(await self._find(request.run_id, context), request)

    async def ListResults(
        self, request: pb.ListResultsRequest, context: ServicerContext
    ) -> pb.ListResultsResponse:
        """Lists judgements."""
        return await self._listing.results(await self._find(request.run_id, context), request)

    async def GetLeaderboard(
        self, request: pb.GetLeaderboardRequest, context: ServicerContext
    ) -> pb.GetLeaderboardResponse:
        """Ranks the models."""
        run = await self._find(request.run_id, context)
        return await self._background.call(reading.rank, run, request.measure, self._store)

    async def ExportResults(
        self, request: pb.ExportResultsRequest, context: ServicerContext
    ) -> AsyncGenerator[pb.ExportResultsResponse]:
        """Streams the judgements as one file."""
        run = await self._find(request.run_id, context)
        pieces = await self._background.call(reading.export, run.id, request, self._store)
        async with aclosing(self._background.stream(pieces)) as chunks:
            async for chunk in chunks:
                yield pb.ExportResultsResponse(chunk=chunk)

    async def GetReport(
        self, request: pb.GetReportRequest, context: ServicerContext
    ) -> AsyncGenerator[pb.GetReportResponse]:
        """Streams the report."""
        run = await self._find(request.run_id, context)
        pieces = await self._background.call(reading.report, run, request.sample_limit, self._store)
        async with aclosing(self._background.stream(pieces)) as chunks:
            async for chunk in chunks:
                yield pb.GetReportResponse(chunk=chunk)

    async def _find(self, run_id: str, context: ServicerContext) -> RunRecord:
        return await self._finder.find(run_id, tenant_of(context))
