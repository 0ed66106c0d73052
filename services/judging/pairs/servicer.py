"""PairJudgeService: validates requests, compares texts and signs the provenance."""

from __future__ import annotations

import time
from typing import Any

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.api.judging.v1 import pair_judge_service_pb2_grpc as pb_grpc
from dramaturg.judge.dialogues import require_turns
from dramaturg.judge.provenance import sign
from dramaturg.service.errors import invalid
from services.judging.pairs.judge import LlmPairJudge
from services.judging.pairs.presentation import continues_dialogue

DESCRIPTOR = pb.DESCRIPTOR.services_by_name["PairJudgeService"]


class PairJudgeServicer(pb_grpc.PairJudgeServiceServicer):
    """Serves a judge of pairs."""

    def __init__(self, judge: LlmPairJudge) -> None:
        self._judge = judge

    async def ComparePair(self, request: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
        del context
        _require_known_order(request)
        if continues_dialogue(request):
            utterances = request.dialogue.utterances
            require_turns(utterances, last=dialogue_pb2.SPEAKER_USER, path="dialogue.utterances")
        started = time.perf_counter()
        response = await self._judge.compare(request)
        sign(response.provenance, self._judge, DESCRIPTOR.full_name, started=started)
        return response


def _require_known_order(request: pb.ComparePairRequest) -> None:
    if request.order not in pb.PresentationOrder.values():
        raise invalid("order", f"is {request.order}, which is not known")
