"""RatingJudgeService: validates dialogues, rates responses and signs the provenance."""

from __future__ import annotations

import time
from typing import Any

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.judging.v1 import rating_judge_service_pb2 as pb
from dramaturg.api.judging.v1 import rating_judge_service_pb2_grpc as pb_grpc
from dramaturg.judge.dialogues import require_turns
from dramaturg.judge.provenance import sign
from services.judging.ratings.judge import LlmRatingJudge

DESCRIPTOR = pb.DESCRIPTOR.services_by_name["RatingJudgeService"]


class RatingJudgeServicer(pb_grpc.RatingJudgeServiceServicer):
    """Serves a rating judge."""

    def __init__(self, judge: LlmRatingJudge) -> None:
        self._judge = judge

    async def RateReply(self, request: pb.RateReplyRequest, context: Any) -> pb.RateReplyResponse:
        """Rates the last response of a dialogue."""
        del context
        require_turns(request.utterances, last=dialogue_pb2.SPEAKER_USER)
        started = time.perf_counter()
        rating = await self._judge.rate(request)
        sign(rating.provenance, self._judge, DESCRIPTOR.full_name, started=started)
        return pb.RateReplyResponse(rating=rating)
