"""The choice of successors and predecessors: needs torch."""

from __future__ import annotations

from math import exp, log
from typing import Any

import pytest

from dramaturg_research.training.epochs import choice_loss

torch: Any = pytest.importorskip("torch", reason="needs the extra [embeddings]")

# Of three events, 0 -> 1 and 0 -> 2.
EDGES = torch.tensor([[[0.0, 1, 1], [0, 0, 0], [0, 0, 0]]])
COUNTED = (1 - torch.eye(3))[None]


def test_scores_that_tell_nothing_are_as_good_as_a_draw() -> None:
    # Two other events and "none", for each of three events and both ways.
    assert float(choice_loss(torch.zeros(1, 3, 3), EDGES, COUNTED)) == pytest.approx(log(3))


def test_the_choice_is_among_events_and_none() -> None:
    scores = torch.tensor([[[9.0, 2, 1], [0, 9, -1], [0, -1, 9]]])
    after = [log(exp(2) + exp(1) + 1) - 1.5, log(2 + exp(-1)), log(2 + exp(-1))]
    before = [log(3), log(exp(2) + exp(-1) + 1) - 2, log(exp(1) + exp(-1) + 1) - 1]
    assert float(choice_loss(scores, EDGES, COUNTED)) == pytest.approx((sum(after) + sum(before)) / 6)


def test_right_scores_cost_nothing_but_the_doubt_between_two_successors() -> None:
    scores = (EDGES * 2 - 1) * 30
    assert float(choice_loss(scores, EDGES, COUNTED)) == pytest.approx(log(2) / 6, abs=1e-4)
    assert float(choice_loss(-scores, EDGES, COUNTED)) > 10


def test_places_that_fill_up_a_batch_do_not_count() -> None:
    scores = torch.tensor([[[0.0, 2, 1], [0, 0, -1], [0, -1, 0]]])
    wide_scores, wide_edges, wide_counted = (torch.full((1, 5, 5), fill) for fill in (7.0, 0.0, 0.0))
    wide_scores[:, :3, :3], wide_edges[:, :3, :3], wide_counted[:, :3, :3] = scores, EDGES, COUNTED
    wide_scores.requires_grad_()
    alone, beside = (
        choice_loss(scores, EDGES, COUNTED),
        choice_loss(wide_scores, wide_edges, wide_counted),
    )
    assert float(beside.detach()) == pytest.approx(float(alone))
    beside.backward()
    assert bool(wide_scores.grad.isfinite().all())
    assert {tuple(place) for place in wide_scores.grad[0].nonzero().tolist()} == {
        (i, j) for i in range(3) for j in range(3) if i != j
    }
