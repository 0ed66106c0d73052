"""EdgeService in front of a real HTTP server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from dramaturg.api.generation.v1 import edge_service_pb2 as pb
from dramaturg.api.generation.v1.edge_service_pb2_grpc import EdgeServiceStub
from dramaturg.api.graph.v1.script_graph_pb2 import Event
from dramaturg.service.channel import open_channel
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from services.generation.app import App
from tests.support.generation import endpoint, generation_settings
from tests.support.openai_server import OpenAIServer

if TYPE_CHECKING:
    from dramaturg.api.generation.v1.edge_service_pb2_grpc import EdgeServiceAsyncStub

EVENTS = [
    Event(id="last", text="bake it"),
    Event(id="first", text="find the recipe"),
    Event(id="middle", text="mix the dough"),
]


@asynccontextmanager
async def edge_service(server: OpenAIServer) -> AsyncIterator[EdgeServiceAsyncStub]:
    settings = generation_settings(providers={"p0": endpoint(server)})
    async with (
        App(settings).open() as contracts,
        Server(contracts, ServerSettings(port=0)) as serving,
        open_channel(serving.target) as channel,
    ):
        yield EdgeServiceStub(channel)


async def predict(
    respond: Callable[[dict[str, Any]], Any], **fields: Any
) -> tuple[pb.PredictEdgesResponse, list[dict[str, Any]]]:
    """Asks once; returns the response and the bodies that the provider got."""
    request = pb.PredictEdgesRequest(**{"scenario": "bake a cake", "events": EVENTS, **fields})
    async with OpenAIServer(respond) as server, edge_service(server) as service:
        response = await service.PredictEdges(request, timeout=30)
    return response, server.bodies


def shown(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])
