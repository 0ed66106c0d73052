from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dramaturg.authoring.duplicates import find_duplicates, repeats
from dramaturg.service.channel import open_channel
from dramaturg.testing import serve
from services.embedding.settings import EmbeddingSettings
from tests.support.embedding import WarmApp
from tests.support.grpc_servers import silent, synthesizer

TEXTS = [
    "is a great fan of trains",
    "Is a great  fan of trains",
    "has no printer",
    "is a great fan of railways",
]


def test_equal_words_repeat_each_other_without_vectors() -> None:
    assert repeats(TEXTS, None, 0.9) == [None, 0, None, None]


def test_a_text_is_compared_with_new_ones_only() -> None:
    # The second is near the first and the third near the second, but not near the first.
    vectors = [(1.0, 0.0), (0.8, 0.6), (0.28, 0.96)]
    assert repeats(["a", "b", "c"], vectors, 0.79) == [None, 0, None]
    assert repeats(["a", "b", "c"], vectors, 0.9) == [None, None, None]


async def test_near_duplicates_are_found_by_their_vectors() -> None:
    async with (
        WarmApp(EmbeddingSettings()).open() as contracts,
        serve(*contracts) as server,
        open_channel(server.target) as channel,
    ):
        found = await find_duplicates(channel, TEXTS, 0.7)
    assert found.unchecked == ""
    assert found.earlier == [None, 0, None, 0]


async def test_without_embeddings_it_says_so() -> None:
    async with serve(synthesizer(silent)) as server, open_channel(server.target) as channel:
        found = await find_duplicates(channel, TEXTS, 0.7)
    assert found.unchecked
    assert found.earlier == [None, 0, None, None]


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_what_is_kept_has_no_two_equal(texts: Any) -> None:
    found = repeats(texts, None, 1.0)
    kept = [text for text, earlier in zip(texts, found, strict=True) if earlier is None]
    assert sorted(kept) == sorted(set(texts))
    assert all(
        texts[earlier] == text for text, earlier in zip(texts, found, strict=True) if earlier is not None
    )
