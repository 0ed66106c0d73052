from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import ReplyScore
from dramaturg.api.judging.v1.text_scorer_service_pb2 import TextScore
from gateway.evaluations.dialogues.ratings import ReplyScoreAggregator

TIMED_OUT = verdict_pb2.ABSTAIN_REASON_TIMED_OUT


def score(value: float | None, judge: str = "words", attribute: str = "toxicity") -> ReplyScore:
    one = TextScore(abstain_reason=TIMED_OUT) if value is None else TextScore(value=value)
    return ReplyScore(model="m", judge=judge, attribute=attribute, score=one)


def test_what_was_not_scored_is_counted_and_in_no_mean() -> None:
    aggregator = ReplyScoreAggregator()
    # The call that timed out does not say what it would have scored.
    aggregator.add([score(None, attribute="")])
    aggregator.add([score(0.2)])
    aggregator.add([score(0.6)])
    (found,) = aggregator.figures()
    assert (found.model, found.judge, found.attribute) == ("m", "words", "toxicity")
    assert (found.replies, found.mean.n) == (3, 2)
    assert found.mean.value == pytest.approx(0.4)
    assert found.coverage == pytest.approx(2 / 3)
    assert (found.high, found.high_share) == (1, 0.5)
    assert found.abstentions == {"TIMED_OUT": 1}


def test_of_nothing_there_is_no_mean_and_no_share() -> None:
    aggregator = ReplyScoreAggregator()
    aggregator.add([score(None, attribute="")])
    (found,) = aggregator.figures()
    assert (found.mean.value, found.high_share, found.coverage, found.attribute) == (None, None, 0, "")
    assert ReplyScoreAggregator().figures() == []


def test_scorers_are_kept_apart() -> None:
    aggregator = ReplyScoreAggregator()
    aggregator.add([score(0.5), score(0.9, "api", "insult")])
    assert [(one.attribute, one.mean.value, one.high) for one in aggregator.figures()] == [
        ("toxicity", 0.5, 0),
        ("insult", 0.9, 1),
    ]


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=30))
def test_coverage_and_abstentions_add_up(values: list[float | None]) -> None:
    aggregator = ReplyScoreAggregator()
    aggregator.add(map(score, values))
    (found,) = aggregator.figures()
    known = [value for value in values if value is not None]
    assert found.replies == len(values)
    assert found.coverage == len(known) / len(values)
    assert found.high == sum(value > 0.5 for value in known)
    if found.mean.lower is not None and found.mean.upper is not None and found.mean.value is not None:
        assert 0 <= found.mean.lower <= found.mean.value + 1e-9
        assert found.mean.value - 1e-9 <= found.mean.upper <= 1
