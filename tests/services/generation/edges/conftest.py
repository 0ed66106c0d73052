"""EdgeService in front of a real HTTP server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dramaturg.api.generation.v1 import edge_service_pb2 as pb
from dramaturg.api.graph.v1.script_graph_pb2 import Event
from tests.support.generation import generation_service
from tests.support.openai_server import OpenAIServer

EVENTS = [
    Event(id="last", text="bake it"),
    Event(id="first", text="find the recipe"),
    Event(id="middle", text="mix the dough"),
]


async def predict(
    respond: Callable[[dict[str, Any]], Any], **fields: Any
) -> tuple[pb.PredictEdgesResponse, list[dict[str, Any]]]:
    """Asks once; returns the response and the bodies that the provider got."""
    request = pb.PredictEdgesRequest(**{"scenario": "bake a cake", "events": EVENTS, **fields})
    async with OpenAIServer(respond) as server, generation_service(server) as service:
        response = await service.edges.PredictEdges(request, timeout=30)
    return response, server.bodies


def shown(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])
