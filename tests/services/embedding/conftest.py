from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from tests.support.embedding import embedding_stub


@pytest_asyncio.fixture
async def stub() -> AsyncIterator[embedding_service_pb2_grpc.EmbeddingServiceAsyncStub]:
    async with embedding_stub() as stub:
        yield stub
