"""The rubric judge without a model."""

from __future__ import annotations

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.judging.v1.judge_service_pb2 import (
    Criterion,
    CriterionScale,
    JudgeCandidate,
    JudgeRequest,
)
from dramaturg.judge.batches import JudgeItem, decode_batch
from services.judging.rubrics.offline import OfflineRubricJudge


@pytest.mark.parametrize("scale", [None, CriterionScale(lowest=1, highest=5)])
@pytest.mark.parametrize("definition", ["", "It greets the customer.", "At most 3 words."])
async def test_every_criterion_abstains_with_its_reason(
    definition: str, scale: CriterionScale | None
) -> None:
    request = JudgeRequest(
        candidates=[JudgeCandidate(id="a", text="Hello.", reading=verdict_pb2.READING_TEXT)],
        criteria=[Criterion(id="one", definition=definition, scale=scale)],
    )
    batch = decode_batch(request, ["one"])
    (verdict,) = (await OfflineRubricJudge().judge(JudgeItem(batch, batch.candidates[0]))).verdicts
    assert verdict.abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED
    assert "only criteria with a rule" in verdict.rationale
