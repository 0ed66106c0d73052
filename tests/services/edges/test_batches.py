from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.edges.batches import inference_batches

lengths = st.lists(st.integers(1, 48), max_size=400)


@given(lengths, st.integers(1, 40))
def test_inference_batches_hold_everything_once_longest_first(lengths: list[int], size: int) -> None:
    batches = inference_batches(lengths, size)
    order = [index for batch in batches for index in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert all(1 <= len(batch) <= size for batch in batches)
    assert [lengths[index] for index in order] == sorted(lengths, reverse=True)
