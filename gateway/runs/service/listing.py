"""Pages of runs, and of a run's samples and judgements."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from gateway.runs.records import RunRecord
from gateway.runs.service.background import Background
from gateway.runs.service.encoding import describe_all
from gateway.runs.service.paging import fill_page
from gateway.runs.service.tokens import key_of, next_token
from gateway.runs.store.base import RunStore

_RUNS_A_PAGE = 50
_SAMPLES_A_PAGE = 50
_RESULTS_A_PAGE = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Listing:
    """Lists, a page at a time.

    Args:
        store: What is listed.
        background: Where it is asked.
    """

    def __init__(self, store: RunStore, background: Background) -> None:
        self._store = store
        self._background = background

    async def runs(self, request: pb.ListRunsRequest, tenant: str) -> pb.ListRunsResponse:
        """A page of a tenant's runs, the newest first."""
        size = request.page_size or _RUNS_A_PAGE
        key = key_of(request, int, str)
        runs = await self._background.call(
            self._store.list_runs,
            tenant,
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

    async def samples(self, run: RunRecord, request: pb.ListSamplesRequest) -> pb.ListSamplesResponse:
        """A page of a run's samples."""

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

    async def results(self, run: RunRecord, request: pb.ListResultsRequest) -> pb.ListResultsResponse:
        """A page of a run's judgements."""

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
