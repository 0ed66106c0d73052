"""Servicer of GraphService. Parsing and scoring run in threads, solvers in processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1 import graph_service_pb2_grpc
from dramaturg.graphs.parsing.graph import TooLargeError
from dramaturg.service.context import remaining
from dramaturg.service.errors import ServiceError, invalid
from services.graph import operations
from services.graph.codec import choices
from services.graph.codec.distances import decode_measurement
from services.graph.codec.graphs import too_large
from services.graph.cycles import FeedbackArcSet
from services.graph.settings import GraphSettings
from services.graph.solver.pool import SolverPool
from services.graph.solver.tasks import distance_task, feedback_task

_RESERVE_SECONDS = 0.5
"""Time reserved before the deadline to stop a solver and to respond."""

_INLINE_BYTES = 4096
"""The largest request that is checked or scored in the event loop, in bytes. It takes about a millisecond; a
thread costs more than that under load."""

_Request = TypeVar("_Request", bound=Message)
_Result = TypeVar("_Result")


class GraphServicer(graph_service_pb2_grpc.GraphServiceServicer):
    """Reads, checks and measures script graphs."""

    def __init__(self, pool: SolverPool, threads: Executor, settings: GraphSettings) -> None:
        self._pool = pool
        self._threads = threads
        self._settings = settings

    async def ParseGraph(self, request: pb.ParseGraphRequest, context: object) -> pb.ParseGraphResponse:
        del context
        return await self._in_thread(operations.parse_graph, request)

    async def CheckGraph(self, request: pb.CheckGraphRequest, context: object) -> pb.CheckGraphResponse:
        del context
        return await self._inline_if_small(operations.check_graph, request)

    async def ScoreEdges(self, request: pb.ScoreEdgesRequest, context: object) -> pb.ScoreEdgesResponse:
        del context
        return await self._inline_if_small(operations.score_edges, request)

    async def MeasureEditDistance(
        self, request: pb.MeasureEditDistanceRequest, context: object
    ) -> pb.MeasureEditDistanceResponse:
        del context
        measurement = await self._in_thread(decode_measurement, request)
        start = time.monotonic()
        solution = await self._solve(distance_task(measurement.problem), request.time_limit)
        response = measurement.encode(solution)
        response.elapsed.FromNanoseconds(round((time.monotonic() - start) * 1e9))
        return response

    async def AggregatePairs(
        self, request: pb.AggregatePairsRequest, context: object
    ) -> pb.AggregatePairsResponse:
        """Aggregates edge probabilities into an acyclic graph."""
        del context
        weighted = await self._in_thread(choices.decode_pairs, request)
        arcs = None
        if request.cycle_policy == pb.CYCLE_POLICY_MIN_FAS:
            task = feedback_task(weighted.edges, len(request.events))
            found = await self._solve(task, request.time_limit)
            arcs = FeedbackArcSet([(u, v, weight) for u, v, weight in found["removed"]], found["proven"])
        return await self._in_thread(partial(choices.aggregate_pairs, weighted, arcs), request)

    async def AggregatePreferences(
        self, request: pb.AggregatePreferencesRequest, context: object
    ) -> pb.AggregatePreferencesResponse:
        """Decides comparisons by majority."""
        del context
        return await self._in_thread(choices.aggregate_preferences, request)

    async def DrawBaseline(self, request: pb.DrawBaselineRequest, context: object) -> pb.DrawBaselineResponse:
        del context
        return await self._in_thread(choices.draw_baselines, request)

    async def SelectByAgreement(
        self, request: pb.SelectByAgreementRequest, context: object
    ) -> pb.SelectByAgreementResponse:
        """Selects graphs by annotator agreement."""
        del context
        return await self._in_thread(choices.select_by_agreement, request)

    async def _inline_if_small(self, work: Callable[[_Request], _Result], request: _Request) -> _Result:
        if request.ByteSize() <= _INLINE_BYTES:
            return work(request)
        return await self._in_thread(work, request)

    async def _in_thread(self, work: Callable[[_Request], _Result], request: _Request) -> _Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, request)
        except TooLargeError as error:
            raise too_large(error) from error

    async def _solve(self, task: Mapping[str, Any], asked: Duration) -> dict[str, Any]:
        seconds = asked.ToTimedelta().total_seconds()
        if seconds < 0:
            raise invalid("time_limit", f"is {seconds} seconds; must be at least 0")
        limit = min(seconds or self._settings.time_limit_seconds, self._settings.maximum_time_limit_seconds)
        left = remaining()
        until = None if left is None else time.monotonic() + left - _RESERVE_SECONDS
        try:
            return await self._pool.run(task, limit, until)
        except TimeoutError as error:
            raise ServiceError(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
                "no bound was found before the deadline",
            ) from error
