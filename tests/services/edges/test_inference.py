"""Inference: what it asks a model, and its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.edges.inference import Ensemble, infer, inference_batches
from services.edges.order import Edge


class Fixed:
    """Stands where a model does: gives all pairs one probability, in some batches.

    Args:
        probability: Of each pair.
        batches: How many.
    """

    def __init__(self, probability: float, batches: int) -> None:
        self._probability = probability
        self.batch_count = batches
        self.truncated = batches
        self.worked: list[int] = []

    def inference(self, scenario: str, events: Sequence[str], batch_size: int) -> Fixed:
        assert (scenario, batch_size) == ("s", 64)
        return self

    def run_batch(self, batch: int) -> None:
        self.worked.append(batch)

    def probabilities(self) -> Mapping[Edge, float]:
        return {(0, 1): self._probability, (1, 0): 1 - self._probability}


def test_the_answer_is_the_mean_and_every_batch_is_worked_once() -> None:
    members = Fixed(0.9, 2), Fixed(0.6, 1), Fixed(0.3, 3)
    ensemble = Ensemble(members)
    assert infer(ensemble, "s", ["a", "b"]) == pytest.approx({(0, 1): 0.6, (1, 0): 0.4})
    assert [member.worked for member in members] == [[0, 1], [0], [0, 1, 2]]


def test_readings_are_counted_over_all_members() -> None:
    inference = Ensemble([Fixed(0.5, 2), Fixed(0.5, 3)]).inference("s", ["a", "b"], 64)
    assert inference.batch_count == 5
    assert inference.truncated == 5


lengths = st.lists(st.integers(1, 48), max_size=400)


@given(lengths, st.integers(1, 40))
def test_inference_batches_hold_everything_once_longest_first(lengths: list[int], size: int) -> None:
    batches = inference_batches(lengths, size)
    order = [index for batch in batches for index in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert all(1 <= len(batch) <= size for batch in batches)
    assert [lengths[index] for index in order] == sorted(lengths, reverse=True)
