"""What decides a training and what is kept of it, without torch."""

from __future__ import annotations

from dramaturg_research.training.checkpoints import differences
from services.edges.plan import Label, TrainingPlan

PLAN = TrainingPlan(encoder="e", learning_rate=0.1, warmup=0.1)


def test_another_training_is_told_by_what_differs() -> None:
    saved = {"plan": PLAN.model_dump(mode="json"), "data_sha256": "a"}
    other = PLAN.model_copy(update={"label": Label.EDGE, "seed": 5})
    present = {"plan": other.model_dump(mode="json"), "data_sha256": "b"}
    assert differences(saved, saved) == []
    assert differences(saved, present) == ["data", "label", "seed"]
