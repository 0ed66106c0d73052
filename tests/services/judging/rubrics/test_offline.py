"""The rubric judge without a model."""

from __future__ import annotations

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.judging.v1.judge_service_pb2 import (
    Criterion,
    CriterionScale,
    JudgeCandidate,
    JudgeRequest,
)
from dramaturg.judge.batches import JudgeItem, decode_batch
from services.judging.rubrics.offline import OfflineRubricJudge

PASS, FAIL = verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL


async def judge(definition: str, text: str, scale: CriterionScale | None = None) -> Verdict:
    request = JudgeRequest(
        candidates=[JudgeCandidate(id="a", text=text, reading=verdict_pb2.READING_TEXT)],
        criteria=[Criterion(id="rule", definition=definition, scale=scale)],
    )
    batch = decode_batch(request, ["rule"])
    (verdict,) = (await OfflineRubricJudge().judge(JudgeItem(batch, batch.candidates[0]))).verdicts
    return verdict


@pytest.mark.parametrize(
    ("definition", "text", "outcome"),
    [
        ("At most 3 words.", "one two three", PASS),
        ("At most 3 words.", "one two three four", FAIL),
        ("Pass: The answer has no more than 2 sentences.", "It is. It was! So?", FAIL),
        ("The text has at least 2 sentences", "It is 2.5 long. Yes", PASS),
        ("Between 5 and 10 characters.", "12345", PASS),
        ("Between 5 and 10 characters.", "1234", FAIL),
        ("exactly 2 paragraphs", "a\n\nb", PASS),
        ("exactly 2 lines", "a\n\nb\nc", FAIL),
        ("Contains 'refund'.", "You get a REFUND.", PASS),
        ("Contains 'refund'.", "You get refunds.", FAIL),
        ('The reply does not contain "sorry".', "Sorry!", FAIL),
        ("Never mentions the word 'price'", "It is free.", PASS),
    ],
)
async def test_lengths_and_quoted_words_are_judged(definition: str, text: str, outcome: int) -> None:
    assert (await judge(definition, text)).outcome == outcome


@pytest.mark.parametrize(
    "definition",
    [
        "",
        "It greets the customer.",
        "At most 80 words, and polite.",
        "Pass: At most 80 words.\nFail: more than 80 words.",
        "Short: at most some words.",
    ],
)
async def test_all_other_criteria_abstain(definition: str) -> None:
    verdict = await judge(definition, "Hello.")
    assert verdict.abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED
    assert "Without a language model" in verdict.rationale


async def test_scales_abstain() -> None:
    verdict = await judge("At most 3 words.", "one", CriterionScale(lowest=1, highest=5))
    assert verdict.abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED
