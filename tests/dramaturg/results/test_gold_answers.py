from __future__ import annotations

import pytest

from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_TIMED_OUT
from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswer, GoldAnswerFigures, ScriptsResult
from dramaturg.results.gold_answers import count, describe_missing, missing_reason, too_many_missing

LATE = GoldAnswer(failure="It is late.", failure_reason=ABSTAIN_REASON_TIMED_OUT)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ScriptsResult(), None),
        (ScriptsResult(gold_answer=GoldAnswer()), ""),
        (ScriptsResult(gold_answer=LATE), "TIMED_OUT"),
        (ScriptsResult(gold_answer=GoldAnswer(failure="of an older synthesizer")), "UNSPECIFIED"),
    ],
)
def test_the_reason_of_a_missing_gold_answer(result: ScriptsResult, reason: str | None) -> None:
    assert missing_reason(result) == reason


def test_samples_that_are_taken_out_leave_nothing() -> None:
    figures = GoldAnswerFigures()
    for reason in (None, "", "REFUSED", "TIMED_OUT", "TIMED_OUT"):
        count(figures, reason)
    assert describe_missing(figures) == (
        "3 of 4 samples were judged without the gold answer that they asked for (TIMED_OUT 2, REFUSED 1)"
    )
    count(figures, "TIMED_OUT", -2)
    assert dict(figures.missing_by_reason) == {"REFUSED": 1}
    count(figures, "REFUSED", -1)
    count(figures, "", -1)
    assert not figures.ByteSize()
    assert not describe_missing(figures)


@pytest.mark.parametrize(
    ("missing", "most", "partial"),
    [(1, None, False), (2, None, True), (1, 0.0, True), (0, 0.0, False), (10, 1.0, False), (5, 0.5, False)],
)
def test_the_share_above_which_an_evaluation_is_partial(
    missing: int, most: float | None, partial: bool
) -> None:
    figures = GoldAnswerFigures(
        sample_count=10, missing_count=missing, missing_by_reason={"REFUSED": missing}
    )
    assert bool(too_many_missing(figures, most)) is partial


def test_results_that_asked_for_a_gold_answer_are_counted() -> None:
    figures = GoldAnswerFigures()
    for answer in (None, GoldAnswer(), LATE, LATE):
        count(figures, missing_reason(ScriptsResult(gold_answer=answer)))
    assert (figures.sample_count, figures.missing_count) == (3, 2)
    assert dict(figures.missing_by_reason) == {"TIMED_OUT": 2}
