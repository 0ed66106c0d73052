"""Draws random graphs over the events of given ones, in as many requests as it takes."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1 import graph_service_pb2_grpc as rpc
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph

MAX_GRAPHS = 1_000
"""The most graphs or scripts of a request (the contract's limit)."""


async def draw_baselines(
    service: rpc.GraphServiceAsyncStub,
    graphs: Sequence[ScriptGraph],
    kind: pb.BaselineKind.ValueType,
    seed: int,
    edge_probability: float | None = None,
) -> Sequence[ScriptGraph]:
    """Draws one graph for each given one (``GraphService.DrawBaseline``).

    Args:
        service: GraphService.
        graphs: The graphs, each with one source and one sink.
        kind: How a graph is drawn.
        seed: The seed of the draws.
        edge_probability: The probability of an edge before the reduction. None: the service's default.

    Returns:
        The drawn graphs, in order, with the ids of the given ones.
    """
    drawn: list[ScriptGraph] = []
    for start in range(0, len(graphs), MAX_GRAPHS):
        request = pb.DrawBaselineRequest(
            graphs=graphs[start : start + MAX_GRAPHS],
            kind=kind,
            seed=seed,
            edge_probability=edge_probability,
            first_index=start,
        )
        drawn += (await service.DrawBaseline(request)).graphs
    for graph, given in zip(drawn, graphs, strict=True):
        graph.id = given.id
    return drawn
