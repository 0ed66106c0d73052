from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from dramaturg.api.alignment.v1 import alignment_service_pb2_grpc
from dramaturg.service.channel import open_channel
from dramaturg.testing import serve
from services.alignment.app import AlignmentSettings, App

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


@asynccontextmanager
async def serve_alignment(**settings: Any) -> AsyncIterator[AlignmentServiceAsyncStub]:
    async with (
        App(AlignmentSettings(**settings)).open() as contracts,
        serve(*contracts) as server,
        open_channel(server.target) as channel,
    ):
        yield alignment_service_pb2_grpc.AlignmentServiceStub(channel)


@pytest.fixture
def open_alignment() -> Callable[..., AbstractAsyncContextManager[AlignmentServiceAsyncStub]]:
    """Serves the alignment service with given settings."""
    return serve_alignment


@pytest.fixture
async def alignment() -> AsyncIterator[AlignmentServiceAsyncStub]:
    async with serve_alignment() as stub:
        yield stub
