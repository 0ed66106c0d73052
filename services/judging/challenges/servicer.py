"""ChallengeJudgeService: validates dialogues, finds challenging turns and signs the provenance."""

from __future__ import annotations

import time
from typing import Any

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.judging.v1 import challenge_judge_service_pb2 as pb
from dramaturg.api.judging.v1 import challenge_judge_service_pb2_grpc as pb_grpc
from dramaturg.judge.dialogues import require_turns
from dramaturg.judge.provenance import sign
from services.judging.challenges.judge import LlmChallengeJudge

DESCRIPTOR = pb.DESCRIPTOR.services_by_name["ChallengeJudgeService"]


class ChallengeJudgeServicer(pb_grpc.ChallengeJudgeServiceServicer):
    """Serves a challenge judge."""

    def __init__(self, judge: LlmChallengeJudge) -> None:
        self._judge = judge

    async def FindChallengingTurn(
        self, request: pb.FindChallengingTurnRequest, context: Any
    ) -> pb.FindChallengingTurnResponse:
        """Finds the first turn that is too hard for the simulator."""
        del context
        require_turns(request.utterances, last=dialogue_pb2.SPEAKER_SIMULATOR)
        started = time.perf_counter()
        response = await self._judge.find(request)
        sign(response.provenance, self._judge, DESCRIPTOR.full_name, started=started)
        return response
