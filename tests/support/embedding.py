"""The real embedding service on a free port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.service.channel import open_channel
from dramaturg.testing import serve
from services.embedding.app import App
from services.embedding.light import LightEncoder
from services.embedding.settings import EmbeddingSettings


@asynccontextmanager
async def embedding_stub(
    **settings: Any,
) -> AsyncIterator[embedding_service_pb2_grpc.EmbeddingServiceAsyncStub]:
    """Serves the embedding service with these settings and yields a stub that calls it."""
    async with (
        App(EmbeddingSettings(**settings)).open() as contracts,
        serve(*contracts) as server,
        open_channel(server.target) as channel,
    ):
        yield embedding_service_pb2_grpc.EmbeddingServiceStub(channel)


@cache
def _loaded() -> tuple[LightEncoder, str]:
    return App(EmbeddingSettings())._load()


class WarmApp(App):
    """The service with its weights loaded once for all tests."""

    def _load(self) -> tuple[LightEncoder, str]:
        return _loaded()


@asynccontextmanager
async def warm_embedding_stub() -> AsyncIterator[embedding_service_pb2_grpc.EmbeddingServiceAsyncStub]:
    """Serves the embedding service with its defaults, for tests of what depends on it."""
    async with (
        WarmApp(EmbeddingSettings()).open() as contracts,
        serve(*contracts) as server,
        open_channel(server.target) as channel,
    ):
        yield embedding_service_pb2_grpc.EmbeddingServiceStub(channel)
