from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.errors import ServiceError
from services.judging.pairs.judge import SPEC, LlmPairJudge, PairLimits


class FailsOnce:
    """Refuses the first question, and never answers the second."""

    def __init__(self) -> None:
        self.asked = 0
        self.ended = 0

    async def ask_or_abstain(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        if self.asked == 2:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended += 1
        await asyncio.sleep(0)  # until the second is asked
        message = "no such model"
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION, error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN, message
        )


async def test_an_order_that_fails_ends_the_call_of_the_other() -> None:
    asker: Any = FailsOnce()
    judge = LlmPairJudge(asker, PromptLibrary(SPEC.prompts), PairLimits())
    request = pb.ComparePairRequest(source="A.", first="B.", second="C.")
    async with asyncio.timeout(20):
        with pytest.raises(ServiceError, match="no such model"):
            await judge.compare(request)
    assert (asker.asked, asker.ended) == (2, 1)
