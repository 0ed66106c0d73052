from __future__ import annotations

from collections.abc import Sequence

import pytest

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.tables import lead
from dramaturg.tables.common import standing


def summary(*models: tuple[str, float, float | None], failures: Sequence[int] = ()) -> Summary:
    """Models by rank with their means, p of the difference to the first, and the failures of the last."""
    made = Summary(sample_count=10, judgement_count=100)
    made.scripts.candidate_count = 10
    for rank, (model, mean, p) in enumerate(models, 1):
        entry = made.leaderboard.add(rank=rank, model=model, mean=mean, lower=mean - 0.05, upper=mean + 0.05)
        entry.judged_count = entry.judgement_count = 70
        if rank > 1:
            found = made.model_differences.add(model=model, first_model=models[0][0])
            found.difference.value = mean - models[0][1]
            if p is not None:
                found.adjusted_p_value = p
    for number, count in enumerate(failures):
        made.scripts.figures.add(model=models[-1][0], criterion=f"criterion-{number}", fail_count=count)
    return made


def test_the_lead_names_the_leader_who_is_not_told_apart_and_the_last_with_its_fault() -> None:
    made = summary(("a", 0.9, None), ("b", 0.829, 0.22), ("d", 0.6, 0.001), failures=(3, 17, 8))
    assert lead(made) == (
        "a leads: it passes 90 % of 70 verdicts (95 % interval 85.0 to 95.0 %). "
        "b (−7.1 points, p = 0.220) cannot be told apart from it. "
        "d is last: it passes 60 % of 70 verdicts and fails criterion-1 most often (17 of its 28 failures)."
    )


def test_a_last_model_that_is_not_told_apart_from_the_first_is_not_called_last() -> None:
    text = lead(summary(("a", 0.9, None), ("b", 0.85, 0.4), failures=(2,)))
    assert "last" not in text
    assert text.endswith("b fails criterion-0 most often (2 of its 2 failures).")


def test_models_that_are_behind_are_not_called_equal() -> None:
    text = lead(summary(("a", 0.9, None), ("b", 0.5, 0.002), ("c", 0.4, 0.001)))
    assert "Every other model is behind it (p = 0.002 or less)." in text
    assert "told apart" not in text
    assert "b is behind it (p = 0.002)." in lead(summary(("a", 0.9, None), ("b", 0.5, 0.002)))


@pytest.mark.parametrize("others", [4, 9])
def test_many_models_are_counted_and_those_without_a_test_are_not_told_apart(others: int) -> None:
    made = summary(("a", 0.9, None), *((f"m{place}", 0.8, None) for place in range(others)))
    assert f"m2 (not tested) and {others - 3} more cannot be told apart from it" in lead(made)
    assert len(standing(made)[1]) == others


def test_abstentions_are_said_of_the_model_that_they_are_of() -> None:
    made = summary(("a", 0.9, None))
    assert "abstained" not in lead(made)
    made.leaderboard[0].judged_count = 65
    assert "; 5 of its 70 judgements abstained." in lead(made)
    assert "leads" not in lead(made)
