"""Application of the graph service."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.metadata import version

from dramaturg.api.graph.v1 import graph_service_pb2, graph_service_pb2_grpc
from dramaturg.service.contract import Contract
from services.graph.codec.distances import MAX_DISTANCE_EVENTS
from services.graph.servicer import GraphServicer
from services.graph.settings import GraphSettings
from services.graph.solver.pool import SolverPool


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
