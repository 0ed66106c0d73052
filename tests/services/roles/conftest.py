from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from dramaturg.api.roles.v1.role_service_pb2_grpc import RoleServiceStub
from dramaturg.testing import serve as serve_contracts
from services.embedding.settings import EmbeddingSettings
from services.roles.app import App
from services.roles.settings import RoleSettings
from tests.support.embedding import WarmApp
from tests.support.judges import serve_app
from tests.support.openai_server import OpenAIServer, Responder
from tests.support.readers import generation_target

if TYPE_CHECKING:
    from dramaturg.api.roles.v1.role_service_pb2_grpc import RoleServiceAsyncStub

Served = tuple["RoleServiceAsyncStub", OpenAIServer]
NOWHERE = "localhost:1"


@asynccontextmanager
async def _serve_generating(responder: Responder, **settings: Any) -> AsyncIterator[Served]:
    async with OpenAIServer(responder) as server, generation_target(server) as target:
        roles = RoleSettings(generation_target=target, embedding_target=NOWHERE, **settings)
        async with serve_app(App(roles)) as channel:
            yield RoleServiceStub(channel), server


@asynccontextmanager
async def _serve_clustering(embedding_target: str = "", **settings: Any) -> AsyncIterator[Any]:
    if not embedding_target:
        async with (
            WarmApp(EmbeddingSettings()).open() as contracts,
            serve_contracts(*contracts) as server,
            _serve_clustering(server.target, **settings) as stub,
        ):
            yield stub
        return
    roles = RoleSettings(generation_target=NOWHERE, embedding_target=embedding_target, **settings)
    async with serve_app(App(roles)) as channel:
        yield RoleServiceStub(channel)


@pytest.fixture
def serve_generating() -> Callable[..., AbstractAsyncContextManager[Served]]:
    """Serves roles with a model: yields the stub and the model's server."""
    return _serve_generating


@pytest.fixture
def serve_clustering() -> Callable[..., AbstractAsyncContextManager[RoleServiceAsyncStub]]:
    """Serves roles with the real light embedder, or with the one at a target: yields the stub."""
    return _serve_clustering
