"""Every parser of what a model writes takes linear time, no text breaks one, and none guesses."""

from __future__ import annotations

import random
import time
from functools import partial

import pytest

from dramaturg.judge.reasoning import blanked
from tests.answers.test_properties import READERS
from tests.hostile.parsers import (
    PARSERS,
    REPETITIONS,
    VALUES,
    Parser,
    all_that_take_the_first,
    is_guess,
    random_text,
    repeated,
    takes_the_first,
)
from tests.hostile.values import TEXTS
from tests.support.fleet import report
from tests.support.growth import faster_than_linear

LENGTH = 2_000
LONG_LENGTH = 100_000
"""The limit of a candidate's text, in characters; twice this is the largest limit of a text."""
INPUTS = 1_000_000
"""The generated inputs of the long form."""
_PARTS = len(PARSERS) + len(VALUES)


def beyond_linear(parse: Parser, length: int) -> list[str]:
    growths = {
        name: faster_than_linear(
            partial(parse, repeated(name, length)), partial(parse, repeated(name, 2 * length))
        )
        for name in REPETITIONS
    }
    return [f"{name!r}: {growth}" for name, growth in growths.items() if growth]


@pytest.mark.parametrize("name", PARSERS)
def test_time_grows_linearly(name: str) -> None:
    assert not beyond_linear(PARSERS[name], LENGTH)


@pytest.mark.parametrize("name", PARSERS)
def test_no_text_breaks_a_parser(name: str) -> None:
    source = random.Random(name)
    for text in TEXTS.values():
        PARSERS[name](text)
    for _ in range(500):
        PARSERS[name](random_text(source))


@pytest.mark.parametrize("kind", VALUES)
def test_no_reader_guesses(kind: str) -> None:
    source = random.Random(kind)
    assert not [text for text in TEXTS.values() if is_guess(kind, text)]
    assert not [text for text in (random_text(source) for _ in range(1000)) if is_guess(kind, text)]
    assert not [text for _ in range(300) if (text := takes_the_first(kind, source))]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("rating", "[[5]], 4"),
        ("rating", "Fine.\n\n$\\boxed{6}$ 5"),
        ("rating", "7/10 or 4"),
        ("rating", "2/10. No, 9"),
        ("challenge_turn", "$\\boxed{2}$, Turn 5"),
        ("pair_vote", "[[2]] Text 1"),
        ("pair_vote", "\\boxed{1}, tie"),
        ("decision_choice", "Option 2: search online for the opening hours Both"),
        ("decision_choice", "Option 1 - it is quicker Both options"),
        ("decision_choice", "Option 1: call the library It makes little difference."),
        ("decision_choice", "Option 2 - it is quicker Option 1 - it is quicker"),
        ("decision_choice", "Either: it makes little difference Option 1 - it is quicker"),
        ("decision_choice", "Option 2: search online for the opening hours Option 1, because it is quicker."),
        ("decision_choice", "Option 2: search online for the opening hours Both are possible."),
        ("decision_choice", "Option 1 - it is quicker or Option 2, because it is quicker."),
        ("decision_choice", "Either: it makes little difference or Option 1, because it is quicker."),
    ],
)
def test_two_values_of_an_answer_are_none(kind: str, text: str) -> None:
    assert READERS[kind](text) is None


def test_many_ends_of_reasoning_take_linear_time() -> None:
    once, twice = (partial(blanked, "</think>" * count) for count in (50_000, 100_000))
    assert faster_than_linear(once, twice) is None


@pytest.mark.endurance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PARSERS)
def test_no_text_of_a_million_breaks_a_parser(name: str) -> None:
    parse, source = PARSERS[name], random.Random(f"long {name}")
    slowest = 0.0
    for _ in range(INPUTS // _PARTS):
        text = random_text(source)
        begun = time.thread_time()
        parse(text)
        slowest = max(slowest, time.thread_time() - begun)
    beyond = beyond_linear(parse, LONG_LENGTH)
    report(parser=name, texts=INPUTS // _PARTS, slowest_ms=slowest * 1000, beyond_linear=len(beyond))
    assert not beyond


@pytest.mark.endurance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", VALUES)
def test_no_text_of_a_million_makes_a_reader_guess(kind: str) -> None:
    source = random.Random(f"long {kind}")
    texts = (random_text(source) for _ in range(INPUTS // _PARTS))
    guesses = [text for text in texts if is_guess(kind, text)]
    report(reader=kind, texts=INPUTS // _PARTS, guesses=len(guesses))
    assert not guesses


@pytest.mark.endurance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", VALUES)
def test_no_reader_takes_the_first_of_any_two_answers(kind: str) -> None:
    assert not all_that_take_the_first(kind)
