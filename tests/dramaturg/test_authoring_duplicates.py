from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dramaturg.authoring import repeats


def test_equal_words_repeat_each_other_without_vectors() -> None:
    texts = ["likes trains", "Likes  trains", "has no printer", "likes railways"]
    assert repeats(texts, None, 0.9) == [None, 0, None, None]


def test_a_text_is_compared_with_new_ones_only() -> None:
    # The second is near the first and the third near the second, but not near the first.
    vectors = [(1.0, 0.0), (0.8, 0.6), (0.28, 0.96)]
    assert repeats(["a", "b", "c"], vectors, 0.79) == [None, 0, None]
    assert repeats(["a", "b", "c"], vectors, 0.9) == [None, None, None]


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_what_is_kept_has_no_two_equal(texts: Any) -> None:
    found = repeats(texts, None, 1.0)
    kept = [text for text, earlier in zip(texts, found, strict=True) if earlier is None]
    assert sorted(kept) == sorted(set(texts))
    assert all(
        texts[earlier] == text for text, earlier in zip(texts, found, strict=True) if earlier is not None
    )
