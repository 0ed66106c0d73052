from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dramaturg_research.training.epochs import training_batches

lengths = st.lists(st.integers(1, 48), max_size=400)


@given(lengths, st.integers(1, 8), st.integers(0, 5), st.integers(0, 5))
def test_training_batches_hold_everything_once_and_repeat(
    lengths: list[int], size: int, seed: int, epoch: int
) -> None:
    batches = training_batches(lengths, size, seed, epoch)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert training_batches(lengths, size, seed, epoch) == batches


def test_training_batches_are_of_like_lengths_and_differ_by_epoch_and_seed() -> None:
    lengths = [index * 7919 % 48 + 1 for index in range(1600)]
    batches = training_batches(lengths, 32, 0, 0)
    spread = [max(lengths[i] for i in batch) - min(lengths[i] for i in batch) for batch in batches]
    assert max(spread) <= 2
    assert batches != training_batches(lengths, 32, 0, 1)
    assert batches != training_batches(lengths, 32, 1, 0)
