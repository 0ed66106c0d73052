"""Scorers of single texts: their protocol and contract (``judging.v1.TextScorerService``)."""

from __future__ import annotations

from typing import Protocol

from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.judging.v1 import text_scorer_service_pb2_grpc
from dramaturg.api.judging.v1.text_scorer_service_pb2 import (
    DESCRIPTOR,
    ScoreTextsRequest,
    ScoreTextsResponse,
    TextScore,
)
from dramaturg.judge.contracts import request_contract
from dramaturg.judge.protocols import Implementation
from dramaturg.service.contract import Contract


class TextScorer(Implementation, Protocol):
    """A scorer for the role "text-scorer". Its only criterion is the scored attribute."""

    async def score_texts(self, request: ScoreTextsRequest) -> ScoreTextsResponse:
        """Scores every text of a valid request, in order.

        The attribute and the signer of the response need not be set.
        """


def text_scorer_contract(scorer: TextScorer) -> Contract:
    """Serves a scorer as ``judging.v1.TextScorerService``.

    Raises:
        ValueError: The scorer does not have exactly one criterion.
    """
    if len(scorer.criteria) != 1:
        raise ValueError(f"a text scorer has one criterion, its attribute, not {list(scorer.criteria)}")

    async def score(request: ScoreTextsRequest) -> ScoreTextsResponse:
        response = await scorer.score_texts(request)
        if len(response.scores) != len(request.texts):
            raise RuntimeError(f"{len(response.scores)} scores for {len(request.texts)} texts")
        response.attribute = scorer.criteria[0]
        return response

    add = text_scorer_service_pb2_grpc.add_TextScorerServiceServicer_to_server
    return request_contract(DESCRIPTOR.services_by_name["TextScorerService"], add, scorer, score)


def scored(value: float) -> TextScore:
    """Makes a score in [0, 1].

    Raises:
        ValueError: The value is not in [0, 1].
    """
    if not 0 <= value <= 1:
        raise ValueError(f"a score is in [0, 1], not {value}")
    return TextScore(value=value)


def unscored(reason: AbstainReason.ValueType) -> TextScore:
    """Makes the score of a text that cannot be scored, with the reason."""
    return TextScore(abstain_reason=reason)
