"""Every parser of what a model writes takes linear time, and no text breaks one."""

from __future__ import annotations

import random
import time

import pytest

from tests.hostile.inputs import PARSERS, Parser, hostile_texts, random_text
from tests.support.fleet import report

LENGTH = 8_000
GROWTH = 2.5
"""The most that the time may grow where the length doubles."""
NOISE_SECONDS = 0.02
"""Times below are those of the clock and of the collector."""
INPUTS = 1_000_000
"""The generated inputs of the long form."""


def seconds(parse: Parser, text: str) -> float:
    """The shortest of some runs, in processor time."""
    best = float("inf")
    for _ in range(3):
        begun = time.thread_time()
        parse(text)
        best = min(best, time.thread_time() - begun)
        if best < NOISE_SECONDS:
            break
    return best


def beyond_linear(parse: Parser, length: int) -> list[str]:
    found = []
    for text, longer in zip(hostile_texts(length), hostile_texts(2 * length), strict=True):
        after = seconds(parse, longer)
        if after < NOISE_SECONDS:
            continue
        before = seconds(parse, text)
        if after > GROWTH * max(before, NOISE_SECONDS / 2):
            # Other processes slow a measurement down; none speeds it up.
            before = min(before, *(seconds(parse, text) for _ in range(4)))
            after = min(after, *(seconds(parse, longer) for _ in range(4)))
        if after > GROWTH * max(before, NOISE_SECONDS / 2):
            found.append(f"{text[:20]!r}: {before:.3f} s, then {after:.3f} s")
    return found


@pytest.mark.parametrize("name", PARSERS)
def test_time_grows_linearly(name: str) -> None:
    assert not beyond_linear(PARSERS[name], LENGTH)


@pytest.mark.parametrize("name", PARSERS)
def test_no_text_breaks_a_parser(name: str) -> None:
    source = random.Random(name)
    for _ in range(1000):
        PARSERS[name](random_text(source))


@pytest.mark.endurance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PARSERS)
def test_none_of_a_million_texts_breaks_a_parser(name: str) -> None:
    parse, source = PARSERS[name], random.Random(f"long {name}")
    slowest = 0.0
    for _ in range(INPUTS // len(PARSERS)):
        text = random_text(source)
        begun = time.thread_time()
        parse(text)
        slowest = max(slowest, time.thread_time() - begun)
    report(parser=name, texts=INPUTS // len(PARSERS), slowest_ms=slowest * 1000)
    assert not beyond_linear(parse, 4 * LENGTH)
