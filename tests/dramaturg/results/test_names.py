from __future__ import annotations

from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.run_pb2 import RunOutcome, RunState
from dramaturg.results.names import reason_name, stated_name, value_name


def test_reasons_have_short_names_and_unknown_ones_a_number() -> None:
    assert reason_name(AbstainReason.ABSTAIN_REASON_TIMED_OUT) == "TIMED_OUT"
    assert reason_name(99) == "REASON_99"


def test_a_value_has_no_prefix_and_an_unknown_one_the_last_word_of_the_prefix() -> None:
    assert value_name(RunState, RunState.RUN_STATE_RUNNING) == "RUNNING"
    assert value_name(RunState, 99) == "STATE_99"
    assert (value_name(RunOutcome, 0), stated_name(RunOutcome, 0)) == ("UNSPECIFIED", "")
