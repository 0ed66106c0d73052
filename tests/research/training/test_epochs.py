"""What a model that reads whole scripts is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any, cast

import pytest

from dramaturg_research.training.epochs import CHOICE_WEIGHT, JointBatches, relations_of
from dramaturg_research.training.scripts import make_script
from services.edges.joint_encoder import RELATIONS, JointEncoder, ScriptTokens
from services.edges.plan import Label, Reading, TrainingPlan

LONGER = make_script("t", ["d", "e", "f", "g"], [(0, 1), (0, 2), (2, 3)])
SCRIPT = make_script("s", ["a", "b", "c"], [(0, 1), (1, 2)])


def test_relations_stand_as_the_events_are_read() -> None:
    told = dict(zip(RELATIONS, relations_of(SCRIPT, [2, 0, 1]), strict=True))
    # Read as c, a, b.
    assert told[Label.EDGE] == [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
    assert told[Label.PRECEDES] == [[0, 0, 0], [1, 0, 1], [1, 0, 0]]


class Sure:
    """Stands where a joint encoder does: sure of what holds, and wild where there is nothing to answer.

    Args:
        right: Whether it says the right thing.
    """

    def __init__(self, right: bool) -> None:
        self._sign = 1.0 if right else -1.0

    def tokenize(self, scenario: str, events: Sequence[str]) -> ScriptTokens:
        return ScriptTokens((ord(scenario),), tuple((ord(event),) for event in events), truncated=False)

    def logits(self, scripts: Sequence[ScriptTokens], orders: Sequence[Sequence[int]]) -> Any:
        import torch

        most = max(map(len, orders))
        scores = torch.full((len(scripts), len(RELATIONS), most, most), 1000.0)
        for row, (tokens, order) in enumerate(zip(scripts, orders, strict=True)):
            script = SCRIPT if tokens.scenario == (ord("s"),) else LONGER
            told = torch.tensor(relations_of(script, order)) * 2 - 1
            scores[row, :, : len(order), : len(order)] = told * 20 * self._sign
            scores[row, :, range(most), range(most)] = 1000.0
        return scores


@pytest.mark.parametrize("right", [True, False])
def test_the_loss_counts_pairs_of_two_events_of_one_script(right: bool) -> None:
    pytest.importorskip("torch", reason="needs the extra [embeddings]")
    plan = TrainingPlan(encoder="e", reading=Reading.TOGETHER, batch_size=2)
    for epoch in range(3):
        batches = JointBatches(cast("JointEncoder", Sure(right)), [SCRIPT, LONGER], plan, epoch)
        assert batches.batch_count == 1
        loss = float(batches.loss(0))
        if right:
            # Of seven events one has two successors, between which nothing can choose.
            assert loss == pytest.approx(CHOICE_WEIGHT * log(2) / 7 / 2, abs=1e-3)
        else:
            # Wrong by 20 nats everywhere, where edges count twice; and what is chosen is wrong too.
            assert 60 + CHOICE_WEIGHT * 20 < loss < 60 + CHOICE_WEIGHT * 42
