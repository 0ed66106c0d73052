from __future__ import annotations

import math
from typing import ClassVar

import grpc
import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsRequest, ScoreTextsResponse
from dramaturg.api.judging.v1.text_scorer_service_pb2_grpc import TextScorerServiceStub
from dramaturg.judge.text_scorers import scored, text_scorer_contract, unscored
from dramaturg.service.channel import open_channel
from dramaturg.testing import serve


class Half:
    """Scores the first half of the texts, and says nothing of the rest if it is told to be lazy."""

    name = "half"
    version = "1.0.0"
    description = "Half."
    criteria: ClassVar[list[str]] = ["halfness"]
    capabilities = ()

    def __init__(self, *, lazy: bool = False) -> None:
        self.lazy = lazy

    async def score_texts(self, request: ScoreTextsRequest) -> ScoreTextsResponse:
        half = len(request.texts) // 2
        rest = 0 if self.lazy else len(request.texts) - half
        abstained = unscored(verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE)
        return ScoreTextsResponse(scores=[scored(0.5)] * half + [abstained] * rest)


async def test_attribute_and_provenance_are_those_of_the_identity() -> None:
    async with serve(text_scorer_contract(Half())) as server, open_channel(server.target) as channel:
        response = await TextScorerServiceStub(channel).ScoreTexts(ScoreTextsRequest(texts=["a", "b"]))
    assert response.attribute == "halfness"
    assert (response.provenance.name, response.provenance.version) == ("half", "1.0.0")
    assert response.provenance.contract == "dramaturg.api.judging.v1.TextScorerService"
    assert response.scores[0].value == 0.5
    assert response.scores[1].abstain_reason == verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE


async def test_a_scorer_that_leaves_texts_out_has_failed() -> None:
    """Which of them were left out cannot be known, so nobody guesses."""
    async with serve(text_scorer_contract(Half(lazy=True))) as server, open_channel(server.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await TextScorerServiceStub(channel).ScoreTexts(ScoreTextsRequest(texts=["a", "b"]))
    assert raised.value.code() is grpc.StatusCode.INTERNAL


def test_a_scorer_has_one_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Half, "criteria", ["insult", "threat"])
    with pytest.raises(ValueError, match="one criterion"):
        text_scorer_contract(Half())


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_a_score_off_the_scale_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        scored(value)
