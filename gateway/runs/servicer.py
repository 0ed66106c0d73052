"""RunService: decode, ask the store, tell the engine, encode."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1 import run_service_pb2_grpc
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_PAUSED,
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    Run,
    RunSample,
    RunSpec,
    RunState,
)
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.service.errors import invalid, invalid_fields
from gateway.judges.registry import Registry
from gateway.runs.datasets import DatasetAccess, check_dataset
from gateway.runs.engine.bells import Bells
from gateway.runs.records import ACTIVE, RunRecord
from gateway.runs.service import reading
from gateway.runs.service.background import Background
from gateway.runs.service.creating import new_run, request_id_reused
from gateway.runs.service.encoding import describe, describe_all
from gateway.runs.service.engine import Engine
from gateway.runs.service.errors import not_found, wrong_state
from gateway.runs.service.paging import fill_page
from gateway.runs.service.tenancy import tenant_of
from gateway.runs.service.tokens import key_of, next_token
from gateway.runs.service.validation import check_models, check_spec
from gateway.runs.service.watching import watch
from gateway.runs.store.base import RequestIdReusedError, RunStore

ServicerContext = grpc.aio.ServicerContext[Any, Any]
MOST_MODELS = 100
_RUNS_A_PAGE = 50
_SAMPLES_A_PAGE = 50
_RESULTS_A_PAGE = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


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
        self._engine = engine
        self._registry = registry
        self._access = access
        self._bells = bells or Bells()
        self._background = Background()

    def close(self) -> None:
        """Lets go of the threads in which the store is asked."""
        self._background.close()

    async def CreateRun(self, request: pb.CreateRunRequest, context: ServicerContext) -> pb.CreateRunResponse:
        """Keeps the run and has it worked on."""
        check_spec(request.spec, self._registry)
        check_dataset(request.spec.dataset, self._access)
        wanted = new_run(request, tenant_of(context))
        try:
            run, _ = await self._background.call(self._store.create_run, wanted)
        except RequestIdReusedError as error:
            raise request_id_reused(request.request_id) from error
        if run.state == RUN_STATE_PREPARING:  # also where an earlier call created it and got no further
            await self._engine.submit(run.id)
        return pb.CreateRunResponse(run=await self._describe(run))

    async def GetRun(self, request: pb.GetRunRequest, context: ServicerContext) -> pb.GetRunResponse:
        """Tells where a run stands."""
        return pb.GetRunResponse(run=await self._describe(await self._find(request.run_id, context)))

    async def ListRuns(self, request: pb.ListRunsRequest, context: ServicerContext) -> pb.ListRunsResponse:
        """Lists runs, the newest first."""
        size = request.page_size or _RUNS_A_PAGE
        key = key_of(request, int, str)
        runs = await self._background.call(
            self._store.list_runs,
            tenant_of(context),
            limit=size + 1,
            before=None if key is None else (_EPOCH + int(key[0]) * _MICROSECOND, str(key[1])),
            states=list(request.states),
            labels=dict(request.labels),
        )
        shown = await self._background.call(describe_all, runs[:size], self._store)
        response = pb.ListRunsResponse(runs=shown)
        if len(runs) > size:
            last = runs[size - 1]
            response.next_page_token = next_token(
                request, [(last.create_time - _EPOCH) // _MICROSECOND, last.id]
            )
        return response

    async def UpdateRun(self, request: pb.UpdateRunRequest, context: ServicerContext) -> pb.UpdateRunResponse:
        """Changes limits and budget, whatever the run's state."""
        updated: RunRecord | None = None
        while updated is None:  # somebody else changed the spec meanwhile
            run = await self._find(request.run_id, context)
            spec = RunSpec()
            spec.CopyFrom(run.spec)
            for field in ("limits", "budget"):
                if request.HasField(field):
                    getattr(spec, field).CopyFrom(getattr(request, field))
            updated = await self._background.call(self._store.update_spec, run.id, spec, expected=run.spec)
        await self._wake(updated.id)
        return pb.UpdateRunResponse(run=await self._describe(updated))

    async def PauseRun(self, request: pb.PauseRunRequest, context: ServicerContext) -> pb.PauseRunResponse:
        """Begins no further sample."""
        run = await self._change(request.run_id, context, RUN_STATE_PAUSED, {RUN_STATE_RUNNING}, "is running")
        return pb.PauseRunResponse(run=run)

    async def ResumeRun(self, request: pb.ResumeRunRequest, context: ServicerContext) -> pb.ResumeRunResponse:
        """Goes on."""
        run = await self._change(request.run_id, context, RUN_STATE_RUNNING, {RUN_STATE_PAUSED}, "is paused")
        return pb.ResumeRunResponse(run=run)

    async def CancelRun(self, request: pb.CancelRunRequest, context: ServicerContext) -> pb.CancelRunResponse:
        """Ends the run."""
        run = await self._change(request.run_id, context, RUN_STATE_CANCELLED, ACTIVE, "has not ended")
        return pb.CancelRunResponse(run=run)

    async def RerunRun(self, request: pb.RerunRunRequest, context: ServicerContext) -> pb.RerunRunResponse:
        """Begins some samples anew."""
        run = await self._find(request.run_id, context)
        begun = await self._begin_again(run, request.scope, fresh=request.fresh)
        return pb.RerunRunResponse(run=begun)

    async def ExtendRun(self, request: pb.ExtendRunRequest, context: ServicerContext) -> pb.ExtendRunResponse:
        """Adds models under test."""
        run = await self._find(request.run_id, context)
        if found := list(check_models(run.spec.WhichOneof("evaluation"), request.models)):
            raise invalid_fields(found)
        models = list(dict.fromkeys([*run.spec.models, *request.models]))
        if len(models) > MOST_MODELS:
            raise invalid("models", f"gives the run {len(models)} models; {MOST_MODELS} are the most")
        if run.state in ACTIVE:
            raise wrong_state(run, "has ended")
        if len(models) == len(run.spec.models):
            return pb.ExtendRunResponse(run=await self._describe(run))
        spec = RunSpec()
        spec.CopyFrom(run.spec)
        spec.models[:] = models
        return pb.ExtendRunResponse(run=await self._begin_again(run, pb.RERUN_SCOPE_ALL, spec=spec))

    async def DeleteRun(self, request: pb.DeleteRunRequest, context: ServicerContext) -> pb.DeleteRunResponse:
        """Deletes the run."""
        run = await self._find(request.run_id, context)
        if run.state in ACTIVE:
            raise wrong_state(run, "has ended")
        await self._background.call(self._store.delete_run, run.id)
        self._bells.ring(run.id)
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
        run = await self._find(request.run_id, context)

        async def read(after: int, limit: int) -> list[tuple[int, RunSample]]:
            found = await self._background.call(
                self._store.list_samples, run.id, after=after, limit=limit, states=list(request.states)
            )
            return [(sample.index, sample) for sample in found]

        key = key_of(request, int)
        page = await fill_page(read, -1 if key is None else int(key[0]), request.page_size or _SAMPLES_A_PAGE)
        return pb.ListSamplesResponse(
            samples=page.items,
            next_page_token="" if page.last is None else next_token(request, [page.last]),
        )

    async def ListResults(
        self, request: pb.ListResultsRequest, context: ServicerContext
    ) -> pb.ListResultsResponse:
        """Lists judgements."""
        run = await self._find(request.run_id, context)

        async def read(after: tuple[int, int], limit: int) -> list[tuple[tuple[int, int], RunResult]]:
            found = await self._background.call(
                self._store.list_results,
                run.id,
                after=after,
                limit=limit,
                where=request.filter,
                numbers_only=request.numbers_only,
            )
            return list(found)

        key = key_of(request, int, int)
        after = (-1, -1) if key is None else (int(key[0]), int(key[1]))
        page = await fill_page(read, after, request.page_size or _RESULTS_A_PAGE)
        return pb.ListResultsResponse(
            results=page.items, next_page_token="" if page.last is None else next_token(request, page.last)
        )

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
        run = await self._background.call(self._store.get_run, run_id, tenant_of(context))
        if run is None:
            raise not_found(run_id)
        return run

    async def _describe(self, run: RunRecord) -> Run:
        return await self._background.call(describe, run, self._store)

    async def _wake(self, run_id: str) -> None:
        self._bells.ring(run_id)
        await self._engine.wake(run_id)

    async def _change(
        self,
        run_id: str,
        context: ServicerContext,
        to: RunState.ValueType,
        expected: Collection[RunState.ValueType],
        wanted: str,
    ) -> Run:
        """Changes the state. Where it is that already, a call before this one did it, and it is done."""
        run = await self._find(run_id, context)
        if run.state != to:
            changed = await self._background.call(self._store.change_state, run.id, to, expected=expected)
            if changed is None:
                raise wrong_state(await self._find(run_id, context), wanted)
            run = changed
            await self._wake(run.id)
        return await self._describe(run)

    async def _begin_again(
        self,
        run: RunRecord,
        scope: pb.RerunScope.ValueType,
        *,
        spec: RunSpec | None = None,
        fresh: bool = False,
    ) -> Run:
        begun = await self._background.call(self._store.begin_again, run.id, scope, spec=spec, fresh=fresh)
        if begun is None:
            raise wrong_state(run, "has ended")
        self._bells.ring(begun.id)
        await self._engine.submit(begun.id)
        return await self._describe(begun)
