"""What decides a training and what is kept of it, without torch."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.edges.plan import Label, Reading, TrainingPlan

PLAN = TrainingPlan(encoder="e", learning_rate=0.1, warmup=0.1)


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [PLAN.learning_rate_at(step, 100) for step in range(100)]
    assert rates.index(max(rates)) == 10
    assert max(rates) == pytest.approx(0.1)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[0] > 0
    assert 0 < rates[-1] < 0.002


def test_without_warm_up_the_first_step_is_the_largest() -> None:
    plan = PLAN.model_copy(update={"warmup": 0.0})
    assert plan.learning_rate_at(0, 4) == pytest.approx(0.1)
    assert plan.learning_rate_at(3, 4) == pytest.approx(0.025)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"holdout": 0.9}, {"learning_rate": -1}, {"pace": 3}])
def test_a_plan_has_limits(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        TrainingPlan.model_validate({"encoder": "e", **wrong})


def test_each_reading_has_its_defaults() -> None:
    pairs = TrainingPlan(encoder="e", reading=Reading.PAIRS)
    together = TrainingPlan(encoder="e", reading=Reading.TOGETHER)
    assert pairs.max_length < together.max_length
    assert pairs.learning_rate < together.learning_rate
    assert TrainingPlan(encoder="e", reading=Reading.TOGETHER, epochs=2).epochs == 2
    assert TrainingPlan.model_validate(together.model_dump(mode="json")) == together
    # As a card says it that was written before there was a choice.
    assert TrainingPlan(encoder="e") == pairs


def test_members_have_seeds_that_follow_each_other() -> None:
    plan = TrainingPlan(encoder="e", reading=Reading.TOGETHER, label=Label.BOTH, seed=7, members=3)
    members = [plan.for_member(member) for member in range(3)]
    assert [member.seed for member in members] == [7, 8, 9]
    assert {(member.members, member.label) for member in members} == {(1, Label.PRECEDES)}
    assert plan.model_copy(update={"label": Label.EDGE}).for_member(0).label is Label.EDGE


def test_pairs_have_one_label() -> None:
    with pytest.raises(ValidationError, match="both needs the reading together"):
        TrainingPlan(encoder="e", label=Label.BOTH)
