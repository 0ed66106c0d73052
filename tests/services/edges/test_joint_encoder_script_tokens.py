from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.edges.inference import WindowError
from services.edges.joint_encoder import (
    MAX_EVENT_TOKENS,
    MAX_SCENARIO_TOKENS,
    orders_to_read,
    tokenize_script,
)

START, SEPARATOR = 1, 2
texts = st.text(alphabet="abc", min_size=1, max_size=8)


def letters(texts: Sequence[str], **_: object) -> dict[str, list[list[int]]]:
    """A tokenizer: a token a letter."""
    return {"input_ids": [[ord(letter) for letter in text] for text in texts]}


@given(texts, st.lists(texts, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_every_span_holds_its_event(scenario: str, events: list[str], rng: Random) -> None:
    tokens = tokenize_script(letters, scenario, events, 512)
    order = rng.sample(range(len(events)), len(events))
    sequence, spans = tokens.sequence(order, START, SEPARATOR)
    assert len(sequence) == tokens.length
    assert not tokens.truncated
    told = [[*map(ord, events[place]), SEPARATOR] for place in order]
    assert [sequence[first:end] for first, end in spans] == told
    assert sequence[: spans[0][0]] == [START, *map(ord, scenario), SEPARATOR]
    assert spans[-1][1] == len(sequence)


def test_a_long_text_is_cut_to_its_part() -> None:
    tokens = tokenize_script(letters, "s" * 61, ["a" * 40, "b" * 41], 512)
    assert len(tokens.scenario) == MAX_SCENARIO_TOKENS
    assert [len(event) for event in tokens.events] == [MAX_EVENT_TOKENS] * 2
    assert tokens.truncated
    assert not tokenize_script(letters, "s" * 60, ["a" * 40, "b"], 512).truncated


def test_of_a_huge_text_only_what_can_count_is_read() -> None:
    read: list[int] = []

    def progress_bar(texts: Sequence[str], **options: object) -> dict[str, list[list[int]]]:
        read.extend(map(len, texts))
        # A tokenizer that drops what it does not know.
        return letters([text.replace("?", "") for text in texts])

    assert tokenize_script(progress_bar, "s", ["?" * 1_000_000, "b"], 512).truncated
    assert max(read) < 1000


def test_a_script_that_does_not_fit_is_refused() -> None:
    # Start, "s", separator; two letters and a separator twice.
    assert tokenize_script(letters, "s", ["aa", "bb"], 9).length == 9
    with pytest.raises(WindowError, match="make 9 tokens with the scenario; the model reads at most 8"):
        tokenize_script(letters, "s", ["aa", "bb"], 8)


@given(st.lists(texts, min_size=2, max_size=8, unique=True), st.randoms(use_true_random=False))
def test_the_orders_depend_on_the_texts_alone(events: list[str], rng: Random) -> None:
    shuffled = rng.sample(events, len(events))
    read = [[events[place] for place in order] for order in orders_to_read(events, 3)]
    assert [[shuffled[place] for place in order] for order in orders_to_read(shuffled, 3)] == read
    assert all(sorted(order) == sorted(events) for order in read)


def test_the_orders_differ() -> None:
    orders = orders_to_read([str(index) for index in range(8)], 4)
    assert len({tuple(order) for order in orders}) == 4
