from __future__ import annotations

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.judge import criteria
from dramaturg.judge.verdicts import abstained, empty_candidate, failed, finding, in_order, passed


def test_an_empty_candidate_lacks_steps_and_misses_the_goal_and_nothing_else_can_be_said() -> None:
    verdicts = empty_candidate([*criteria.ABSEVAL, "polite"])
    assert [verdict.criterion for verdict in verdicts] == [*criteria.ABSEVAL, "polite"]
    failing = [verdict.criterion for verdict in verdicts if verdict.outcome == verdict_pb2.OUTCOME_FAIL]
    assert failing == [criteria.NO_MISSING_STEPS, criteria.COMPLETES_GOAL]
    others = [verdict for verdict in verdicts if verdict.criterion not in failing]
    assert {verdict.abstain_reason for verdict in others} == {verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE}
    assert {verdict.outcome for verdict in others} == {verdict_pb2.OUTCOME_ABSTAIN}


def test_steps_of_a_finding_ascend_each_once() -> None:
    found = finding(verdict_pb2.FINDING_KIND_DUPLICATE_STEP, "Twice.", steps=[4, 1, 4])
    assert list(found.step_indices) == [1, 4]


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_score_or_confidence_outside_its_range_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="score"):
        passed("x", score=value)
    with pytest.raises(ValueError, match="confidence"):
        failed("x", confidence=value)


def test_an_absent_score_stays_absent() -> None:
    assert not passed("x").HasField("score")
    assert passed("x", score=0.0).HasField("score")


def test_an_abstention_needs_its_reason() -> None:
    with pytest.raises(ValueError, match="reason"):
        abstained("x", verdict_pb2.ABSTAIN_REASON_UNSPECIFIED)


def test_verdicts_are_put_in_order_and_gaps_abstain() -> None:
    verdicts = in_order([passed("c"), passed("a")], ["a", "b", "c"])
    assert [verdict.criterion for verdict in verdicts] == ["a", "b", "c"]
    assert verdicts[1].abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED


@pytest.mark.parametrize("given", [["a", "a"], ["a", "z"]])
def test_a_judge_may_not_judge_twice_or_what_was_not_asked(given: list[str]) -> None:
    with pytest.raises(ValueError, match="was judged"):
        in_order([passed(criterion) for criterion in given], ["a", "b"])
