"""Messages of ScoreText."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.alignment.v1 import text_pb2 as pb
from services.alignment.text.metric import TextPair
from services.alignment.text.score import TextReport


def decode_pairs(request: pb.ScoreTextRequest) -> Sequence[TextPair]:
    return [TextPair(pair.candidate, pair.reference) for pair in request.pairs]


def encode_report(report: TextReport) -> pb.ScoreTextResponse:
    return pb.ScoreTextResponse(
        scores=[pb.TextScores(scores=one.scores, undefined=one.undefined) for one in report.scores],
        methods=report.methods,
    )
