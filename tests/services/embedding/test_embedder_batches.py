from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from services.embedding.embedder import plan_batches


@given(st.lists(st.integers(1, 300)), st.integers(1, 2000))
def test_every_text_once_and_no_batch_over_the_budget(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = max(lengths[index] for index in batch) * len(batch)
        assert padded <= budget or len(batch) == 1


@given(st.lists(st.integers(1, 300), min_size=1), st.integers(300, 4000))
def test_batches_are_full(lengths: list[int], budget: int) -> None:
    batches = plan_batches(lengths, budget)
    for batch, following in itertools.pairwise(batches):
        assert max(lengths[index] for index in batch) * (len(batch) + 1) > budget
        assert min(lengths[index] for index in batch) >= max(lengths[index] for index in following)
