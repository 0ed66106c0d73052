from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from dramaturg.api.judging.v1.pair_judge_service_pb2_grpc import PairJudgeServiceStub
from services.judging.pairs.judge import SPEC
from tests.support.judges import serve_app
from tests.support.openai_server import OpenAIServer, Responder
from tests.support.readers import generation_target

if TYPE_CHECKING:
    from dramaturg.api.judging.v1.pair_judge_service_pb2_grpc import PairJudgeServiceAsyncStub

Served = tuple["PairJudgeServiceAsyncStub", OpenAIServer]
Serve = Callable[..., AbstractAsyncContextManager[Served]]


@asynccontextmanager
async def _serve(responder: Responder, *, model: Any = None, **settings: Any) -> AsyncIterator[Served]:
    async with (
        OpenAIServer(responder, **(model or {})) as server,
        generation_target(server) as target,
        serve_app(SPEC(generation_target=target, **settings)) as channel,
    ):
        yield PairJudgeServiceStub(channel), server


@pytest.fixture
def serve() -> Serve:
    """Serves the judge of pairs and what it needs: yields its stub and the model's server."""
    return _serve
