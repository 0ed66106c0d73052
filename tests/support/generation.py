"""The generation service as a whole, over real gRPC, against real HTTP servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.api.generation.v1.edge_service_pb2_grpc import EdgeServiceStub
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from services.generation.app import App
from services.generation.settings import GenerationSettings
from tests.support.openai_server import OpenAIServer

if TYPE_CHECKING:  # the generated types of asynchronous stubs exist for type checkers alone
    from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceAsyncStub
    from dramaturg.api.generation.v1.edge_service_pb2_grpc import EdgeServiceAsyncStub
    from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceAsyncStub

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"rationale": {"type": "string"}, "met": {"type": "boolean"}},
        "required": ["rationale", "met"],
        "additionalProperties": False,
    }
)
GOOD = '{"rationale":"all is there","met":true}'

WITHOUT_WAITS = {"first_wait_seconds": 0.0, "longest_wait_seconds": 0.0}


@dataclass(frozen=True)
class Service:
    """The service, reached through a channel."""

    generation: GenerationServiceAsyncStub
    authoring: AuthoringServiceAsyncStub
    edges: EdgeServiceAsyncStub

    async def generate(
        self, text: str = "Is it good?", *, json_format: bool = True, timeout: float = 20, **fields: Any
    ) -> pb.Completion:
        """Asks one question."""
        made = request(text, json_format=json_format, **fields)
        return (await self.generation.Generate(made, timeout=timeout)).completion


def request(text: str = "Is it good?", *, json_format: bool = True, **fields: Any) -> pb.GenerateRequest:
    """A request with one user message."""
    made = pb.GenerateRequest(messages=[pb.Message(role=pb.MESSAGE_ROLE_USER, text=text)], **fields)
    if json_format:
        made.json_format.name, made.json_format.schema = "verdict", SCHEMA
    return made


def endpoint(server: OpenAIServer, **fields: Any) -> dict[str, Any]:
    """The settings of a provider for a server, without waits."""
    return {
        "kind": "chat",
        "base_url": server.base_url,
        "default_model": "m",
        "retries": WITHOUT_WAITS,
        "rate_period_seconds": 0.06,
        **fields,
    }


def generation_settings(**fields: Any) -> GenerationSettings:
    """Settings with a ledger in memory."""
    return GenerationSettings(**{"ledger": ":memory:", **fields})


@asynccontextmanager
async def generation_service(*servers: OpenAIServer, **settings: Any) -> AsyncIterator[Service]:
    """Starts the service with one provider a server ("p0", "p1", ...), or those that the settings name."""
    providers = {f"p{index}": endpoint(server) for index, server in enumerate(servers)}
    async with (
        App(generation_settings(**{"providers": providers, **settings})).open() as contracts,
        Server(contracts, ServerSettings(port=0)) as server,
        open_channel(server.target) as channel,
    ):
        yield Service(GenerationServiceStub(channel), AuthoringServiceStub(channel), EdgeServiceStub(channel))
