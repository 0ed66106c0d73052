"""Every parser of what a model writes takes linear time, no text breaks one, and none guesses."""

from __future__ import annotations

import gc
import random
import time

import pytest

from dramaturg.judge.reasoning import blanked
from tests.answers.test_properties import READERS
from tests.hostile.parsers import (
    PARSERS,
    REPETITIONS,
    VALUES,
    Parser,
    is_guess,
    random_text,
    repeated,
    takes_the_first,
)
from tests.hostile.values import TEXTS
from tests.support.fleet import report

LENGTH = 8_000
LONG_LENGTH = 100_000
"""The limit of a candidate's text, in characters; twice this is the largest limit of a text."""
GROWTH = 2.5
"""The most that the time may grow where the length doubles."""
NOISE_SECONDS = 0.02
"""Times below are those of the clock."""
INPUTS = 1_000_000
"""The generated inputs of the long form."""
_PARTS = len(PARSERS) + 2 * len(VALUES)


def seconds(parse: Parser, text: str) -> float:
    """The shortest of some runs, in processor time."""
    best = float("inf")
    gc.disable()
    try:
        for _ in range(3):
            begun = time.thread_time()
            parse(text)
            best = min(best, time.thread_time() - begun)
            if best < NOISE_SECONDS:
                break
    finally:
        gc.enable()
    return best


def beyond_linear(parse: Parser, length: int) -> list[str]:
    found = []
    for name in REPETITIONS:
        longer = repeated(name, 2 * length)
        after = seconds(parse, longer)
        if after < NOISE_SECONDS:
            continue
        text = repeated(name, length)
        before = seconds(parse, text)
        if after > GROWTH * max(before, NOISE_SECONDS / 2):
            # Other processes slow a measurement down; none speeds it up.
            before = min(before, *(seconds(parse, text) for _ in range(4)))
            after = min(after, *(seconds(parse, longer) for _ in range(4)))
        if after > GROWTH * max(before, NOISE_SECONDS / 2):
            found.append(f"{name!r}: {before:.3f} s, then {after:.3f} s")
    return found


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
    few, many = (seconds(blanked, "</think>" * count) for count in (50_000, 100_000))
    assert many < GROWTH * max(few, NOISE_SECONDS / 2)


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
    firsts = [text for _ in range(INPUTS // _PARTS) if (text := takes_the_first(kind, source))]
    report(reader=kind, texts=2 * (INPUTS // _PARTS), guesses=len(guesses), first_of_two=len(firsts))
    assert not guesses
    assert not firsts
