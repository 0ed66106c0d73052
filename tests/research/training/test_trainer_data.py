"""What decides a training and what is kept of it, without torch."""

from __future__ import annotations

import pytest

from dramaturg_research.training.scripts import ScriptFile, make_script
from dramaturg_research.training.trainer import TooFewScriptsError, TrainingData
from services.edges.plan import TrainingPlan

PLAN = TrainingPlan(encoder="e", learning_rate=0.1, warmup=0.1)


def test_the_data_is_parted_and_counted() -> None:
    scripts = tuple(make_script(f"s {index}", ["a", "b"], [(0, 1)]) for index in range(20))
    data = TrainingData.split(ScriptFile(scripts, {"7": "has a cycle"}, "0" * 64), PLAN)
    assert (data.facts.trained_scripts, data.facts.held_out_scripts) == (18, 2)
    assert data.facts.skipped == {"7": "has a cycle"}
    with pytest.raises(TooFewScriptsError):
        TrainingData.split(ScriptFile(scripts[:1], {}, "0" * 64), PLAN)
