"""Whether a text names a phrase."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.judge.quotes import names_phrase

CALL = "call the library"


@pytest.mark.parametrize(
    ("scenario", "option"),
    [
        ("wants to call the library", CALL),
        ("CALLS  The\nLibrary", CALL),
        ("loves calling libraries", CALL),
        ("likes the library's voice when she calls", CALL),
        ("- Name: Doe\n- Habit: walks", "walk"),
        ("buys fresh bread, cheese and two ripe tomatoes", "buy bread, cheese, butter, tomatoes and fresh"),
        ("想要打电话给图书馆", "打电话"),
    ],
)
def test_naming_wholly_or_nearly_is_a_leak(scenario: str, option: str) -> None:
    assert names_phrase(scenario, option)


@pytest.mark.parametrize(
    ("scenario", "option"),
    [
        ("has no telephone", CALL),
        ("phones the library", CALL),
        ("stands on the sidewalk", "walk"),
        ("has special requests about a library book", CALL),
        ("prefers to search", "search online for the library's hours"),
        ("", CALL),
        ("anything", " "),
    ],
)
def test_less_is_none(scenario: str, option: str) -> None:
    assert not names_phrase(scenario, option)


@given(st.text(max_size=60), st.text(min_size=1, max_size=30), st.text(max_size=60))
def test_the_option_between_other_words_is_always_found(before: str, option: str, after: str) -> None:
    assert not option.strip() or names_phrase(f"{before} {option} {after}", option)
