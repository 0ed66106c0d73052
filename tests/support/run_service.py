"""A RunService whose streams break off as a test wants it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1 import run_service_pb2_grpc
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_RUNNING, RUN_STATE_SUCCEEDED, Run, RunProgress
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve

RUN = "a-run"


class ScriptedRuns(run_service_pb2_grpc.RunServiceServicer):
    """One run, whose progress is told in as many events as samples.

    Args:
        samples: How many samples it has.
        breaks: What each of the first streams ends with, after two events: a code, or None for an end
            without an error.
    """

    def __init__(self, samples: int, breaks: Sequence[grpc.StatusCode | None] = ()) -> None:
        self.created: list[pb.CreateRunRequest] = []
        """What was created."""
        self.cursors: list[int] = []
        """The cursors asked for, one a stream."""
        self._samples = samples
        self.breaks = list(breaks)
        """What is left of them."""
        self._told = 0

    def run(self, done: int) -> Run:
        state = RUN_STATE_SUCCEEDED if done == self._samples else RUN_STATE_RUNNING
        return Run(id=RUN, state=state, progress=self._progress(done))

    async def CreateRun(self, request: pb.CreateRunRequest, context: Any) -> pb.CreateRunResponse:
        self.created.append(request)
        return pb.CreateRunResponse(run=Run(id=RUN, spec=request.spec, state=RUN_STATE_RUNNING))

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> pb.GetRunResponse:
        if request.run_id != RUN:
            raise ServiceError(
                grpc.StatusCode.NOT_FOUND, error_reason_pb2.ERROR_REASON_RESOURCE_NOT_FOUND, "no such run"
            )
        return pb.GetRunResponse(run=self.run(self._told))

    async def ListRuns(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        first = int(request.page_token or 0)
        runs = [Run(id=f"{number}") for number in range(first, min(first + 2, 5))]
        return pb.ListRunsResponse(runs=runs, next_page_token=str(first + 2) if first + 2 < 5 else "")

    async def WatchRun(self, request: pb.WatchRunRequest, context: Any) -> AsyncIterator[pb.WatchRunResponse]:
        self.cursors.append(request.cursor)
        ending = self.breaks.pop(0) if self.breaks else "none"
        for sent, cursor in enumerate(range(request.cursor + 1, self._samples + 1)):
            if sent == 2 and ending != "none":
                break
            yield pb.WatchRunResponse(cursor=cursor, progress=self._progress(cursor))
        if isinstance(ending, grpc.StatusCode):
            await context.abort(ending, "broken off")
        if ending is None:
            return
        self._told = self._samples
        yield pb.WatchRunResponse(cursor=self._samples + 1, run=self.run(self._samples))

    async def ExportResults(
        self, request: pb.ExportResultsRequest, context: Any
    ) -> AsyncIterator[pb.ExportResultsResponse]:
        yield pb.ExportResultsResponse(chunk=b"half a ")
        await context.abort(grpc.StatusCode.INTERNAL, "broken off")

    def _progress(self, done: int) -> RunProgress:
        return RunProgress(sample_count=self._samples, succeeded_count=done)


class _NoRuns(ScriptedRuns):
    """Runs of which none is there yet."""

    async def ListRuns(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        return pb.ListRunsResponse()


@asynccontextmanager
async def run_service(scripted: ScriptedRuns, port: int = 0) -> AsyncIterator[str]:
    """Serves it, on a free port where none is named; yields the address."""
    contract = Contract.make(
        pb.DESCRIPTOR.services_by_name["RunService"],
        run_service_pb2_grpc.add_RunServiceServicer_to_server,
        scripted,
        name="runs",
        version="1.0.0",
        description="Runs for tests.",
    )
    async with serve(contract, port=port, drain_grace_seconds=0.2) as server:
        yield server.target


def scripted_runs(*arguments: Any, **options: Any) -> ScriptedRuns:
    return ScriptedRuns(*arguments, **options)  # type: ignore[abstract]  # other methods answer UNIMPLEMENTED


def no_runs() -> ScriptedRuns:
    """Runs of which none is there yet."""
    return _NoRuns(1)  # type: ignore[abstract]  # other methods answer UNIMPLEMENTED
