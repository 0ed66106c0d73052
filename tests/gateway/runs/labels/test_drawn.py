"""Items of judgements."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from gateway.runs.labels.drawn import preference


def test_both_rows_of_a_comparison_are_one_item_and_votes_by_a_criterion_are_none() -> None:
    first = RunResult(measure="win/roles", candidate_id="first", model="a", label="b", value=1)
    second = RunResult(measure="win/roles", candidate_id="second", model="b", label="a", value=0)
    assert preference(first) == preference(second)
    first.measure = "win/criterion polite"
    assert preference(first) is None
