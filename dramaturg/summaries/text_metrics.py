"""Scores the texts of a pair against their source by overlap, similarity and length: baselines at no cost."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from dramaturg.api.alignment.v1 import text_pb2
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.evaluation.v1.texts_pb2 import CompareTextsRequest, TextsResult
from dramaturg.judge.length import longer_text
from dramaturg.service.errors import from_rpc_error

DEFAULT_METRICS = (
    "rouge-1",
    "rouge-2",
    "rouge-l",
    "bleu",
    "chrf",
    "meteor",
    "embedding",
    "embedding-greedy",
    "embedding-greedy-precision",
    "embedding-greedy-recall",
)
"""The metrics used by default."""
METRICS = (
    *DEFAULT_METRICS,
    "rouge-lsum",
    *(
        f"{variant}-{figure}"
        for variant in ("rouge-1", "rouge-2", "rouge-l", "rouge-lsum")
        for figure in ("precision", "recall")
    ),
)
"""The metrics of AlignmentService except "length", which is part of every comparison."""


async def score_difference(
    channel: grpc.aio.Channel, request: CompareTextsRequest, metrics: Sequence[str], timeout: float
) -> dict[str, float | None]:
    """How much higher the first text scores than the second, with the source in the reference's place.

    There is no reference summary for texts that are compared with each other, so a metric says here how much
    of the source a text takes up.

    Args:
        channel: A channel to AlignmentService.
        request: The texts.
        metrics: The metrics.
        timeout: The most seconds to wait.

    Returns:
        The difference by metric; None where a score is undefined.

    Raises:
        ServiceError: AlignmentService failed.
    """
    asked = text_pb2.ScoreTextRequest(metrics=metrics)
    for text in (request.first.text, request.second.text):
        asked.pairs.add(candidate=text, reference=request.source)
    try:
        response = await AlignmentServiceStub(channel).ScoreText(asked, timeout=timeout)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    first, second = (one.scores for one in response.scores)
    return {
        metric: first[metric] - second[metric] if metric in first and metric in second else None
        for metric in metrics
    }


def unjudged(request: CompareTextsRequest) -> TextsResult:
    """The result of a pair that no judge was asked about."""
    return TextsResult(
        id=request.id,
        tags=request.tags,
        first_model=request.first.model,
        second_model=request.second.model,
        longer=longer_text(request.first.text, request.second.text),
        human_preference=request.human_preference,
    )
