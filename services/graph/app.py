"""The graph service. Parsing and scoring run in threads, solvers in processes."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, ClassVar, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from pydantic import Field

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.graph.v1 import graph_service_pb2, graph_service_pb2_grpc
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.graphs.parsing.builder import TooLargeError
from dramaturg.graphs.parsing.formats import parse
from dramaturg.service.context import remaining
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, invalid
from dramaturg.service.settings import Settings
from services.graph.codec import choices
from services.graph.codec.choices import MAX_DISTANCE_EVENTS, decode_measurement
from services.graph.codec.graphs import (
    check_score,
    decode_choices,
    decode_dialect,
    decode_event,
    decode_graph,
    encode_graph,
    encode_parsed,
    too_large,
)
from services.graph.cycles import FeedbackArcSet
from services.graph.model import canonical_form, check
from services.graph.score import group, score_pair, summarise
from services.graph.solver import distance_task, feedback_task
from services.graph.solver.pool import SolverPool


class GraphSettings(Settings):
    """Settings of the graph service."""

    section: ClassVar[str] = "graph"

    solvers: int = Field(default_factory=lambda: max(1, (os.cpu_count() or 2) // 2), ge=1, le=64)
    """The maximum number of solver processes. Each uses one processor and some 100 MB; further calls wait."""
    threads: int = Field(default=2, ge=1, le=16)
    """The maximum number of threads that parse, check and score graphs."""
    time_limit_seconds: float = Field(default=10.0, gt=0)
    """The search time of requests without a time limit."""
    maximum_time_limit_seconds: float = Field(default=120.0, gt=0)
    """The maximum search time of a request."""


def parse_graph(request: pb.ParseGraphRequest) -> pb.ParseGraphResponse:
    """Parses a graph.

    Raises:
        TooLargeError: The graph exceeds a limit.
    """
    return encode_parsed(parse(request.text, decode_dialect(request.dialect)))


def check_graph(request: pb.CheckGraphRequest) -> pb.CheckGraphResponse:
    """Checks a graph and builds its canonical form.

    Raises:
        ServiceError: INVALID_ARGUMENT: the request is invalid.
    """
    graph = decode_graph(request.graph, "graph")
    if request.root_id and request.root_id not in graph:
        raise invalid("root_id", f"{request.root_id!r} is not an event of the graph")
    response = pb.CheckGraphResponse(report=check(graph, request.root_id or None))
    if request.HasField("canonical_form"):
        form = request.canonical_form
        root = decode_event(form.root, "canonical_form.root") if form.HasField("root") else None
        leaf = decode_event(form.leaf, "canonical_form.leaf") if form.HasField("leaf") else None
        if response.report.acyclic:
            try:
                response.canonical.CopyFrom(encode_graph(canonical_form(graph, root, leaf)))
            except ValueError as error:
                raise invalid("canonical_form", str(error)) from error
    return response


def score_edges(request: pb.ScoreEdgesRequest) -> pb.ScoreEdgesResponse:
    """Scores pairs of graphs and aggregates.

    Raises:
        ServiceError: INVALID_ARGUMENT: the request is invalid.
    """
    choices = decode_choices(request)
    predicted = [
        decode_graph(pair.predicted, f"pairs[{index}].predicted") for index, pair in enumerate(request.pairs)
    ]
    scores = [
        score_pair(
            pair.id,
            graph,
            decode_graph(pair.reference, f"pairs[{index}].reference"),
            choices,
            dict(pair.tags),
        )
        for index, (graph, pair) in enumerate(zip(predicted, request.pairs, strict=True))
    ]
    for index, score in enumerate(request.scored):
        check_score(score, f"scored[{index}]", closure=choices.closure)
    everything = [*request.scored, *scores]
    response = pb.ScoreEdgesResponse(
        summary=summarise(everything, choices),
        empty_rule=choices.empty_rule,
        orientation=choices.orientation,
        reduce=choices.reduce,
    )
    if request.report_predicted:
        response.reports.extend(check(graph) for graph in predicted)
    for by in request.by:
        for value, members in group(everything, by).items():
            response.groups.add(by=by, value=value, summary=summarise(members, choices))
    if not request.omit_scores:
        response.scores.extend(scores)
    return response


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
        return await self._in_thread(parse_graph, request)

    async def CheckGraph(self, request: pb.CheckGraphRequest, context: object) -> pb.CheckGraphResponse:
        del context
        return await self._inline_if_small(check_graph, request)

    async def ScoreEdges(self, request: pb.ScoreEdgesRequest, context: object) -> pb.ScoreEdgesResponse:
        del context
        return await self._inline_if_small(score_edges, request)

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


class App:
    """The graph service: parsing, checking and measuring script graphs."""

    name = "graph"

    def __init__(self, settings: GraphSettings | None = None) -> None:
        self._settings = settings or GraphSettings()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """Starts the threads and the first solver, yields the contract, and stops them."""
        threads = ThreadPoolExecutor(self._settings.threads, thread_name_prefix="graph")
        async with SolverPool(self._settings.solvers) as pool:
            await pool.warm()
            # A full garbage collection blocks the event loop while it scans all loaded modules (130 ms
            # measured). Freezing excludes them from later collections.
            gc.collect()
            gc.freeze()
            try:
                yield [
                    Contract.make(
                        graph_service_pb2.DESCRIPTOR.services_by_name["GraphService"],
                        graph_service_pb2_grpc.add_GraphServiceServicer_to_server,
                        GraphServicer(pool, threads, self._settings),
                        name="script-graphs",
                        version=version("dramaturg"),
                        description="Reads, checks and measures script graphs, without a model.",
                        limits={"max_distance_events": MAX_DISTANCE_EVENTS},
                    )
                ]
            finally:
                threads.shutdown(wait=False, cancel_futures=True)
