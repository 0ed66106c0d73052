"""Every parser takes time linear in its input, up to the limit of the field."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.answers.parsers import PARSERS
from tests.support.growth import faster_than_linear, seconds

LENGTH = 4_000
"""The shorter of two lengths, in characters."""
LONGEST = 200_000
"""The largest limit of a field, in characters (``Candidate.text``, ``ParseGraphRequest.text``)."""


def repeated(unit: str) -> Callable[[int], str]:
    return lambda length: unit * (length // len(unit))


def around(start: str, unit: str, end: str = "") -> Callable[[int], str]:
    return lambda length: start + unit * ((length - len(start) - len(end)) // len(unit)) + end


HOSTILE: dict[str, Callable[[int], str]] = {
    **{
        repr(unit): repeated(unit)
        for unit in (
            "1", "1.", "1 ", " ", "\n", "\u200b\n", "{", "}", "[", "]", "{}", "[]", '"', "\\", '\\"', "`",
            "```\n", "'", ",", ":", "-", "- ", "- - ", "*", "**", "* a\n", "#", ">", "> ", "<", "<think>",
            "</think>", "<think></think>", "<|channel|>", "[[", "]]", "[[1]]", "\\boxed{", "\\boxed{1}",
            "1/10 ", "Rating: 1 ", "Rating: 1\n", "rating is ", "Option 1 ", "Option 1. ", "option 1, ",
            "call the library ", "yes ", "no ", "step", "step ", "Step 1 ", "step1: a;", "step1 -> ",
            "step1 -> step2;", "1 -> 2\n", "a -> b;", "A-->B\n", "1. a\n", "(1) ", "\u7b2c ", "\u4e00\u3001",
            "a", "a ", "a. ", "A.\n", "\u00e9", "\u200d", '{"a":', '{"a":1}', '"a":', '"rating": 1,', "x = ",
            "\ufffd", "\\x00", "/", "//", "/*", "|", "_", "=", "$", "&gt;", "\t", "\r\n",
        )
    },
    "one item and blank lines": around("1. a\n2. ", "\u200b\n"),
    "an open string": around('{"reason": "', "x"),
    "an open string of escapes": around('{"reason": "', '\\"'),
    "inner quotes": around('{"reason": "', 'a "b" ', '", "rating": 1}'),
    "inner quotes and commas": around('{"reason": "', '", "', '", "rating": 1}'),
    "inner names": around('{"reason": "', '"a": ', '", "rating": 1}'),
    "white space in JSON": around('{"reason": "a"', " ", ', "rating": 1}'),
    "broken members": around("{'reason': 'a', ", "'x': 'y', ", "}"),
    "a list of objects": around('{"findings": [', '{"steps": [1], "problem": "1"},', "]}"),
    "a list of numbers": around('{"rating": [', "1,", "1]}"),
    "a rating after digits": around('{"rating": "', "1", '"}'),
    "a verdict after marks": around('{"verdict": "', "*", 'pass"}'),
    "prose before a rating": around("", "word ", "Rating: 7"),
    "an edge at the end": around("", "step", " -> step1"),
    "a fence without an end": around("```", "\n1. a"),
    "a digraph": around("digraph {", "a -> b;", "}"),
    "a flowchart": around("graph TD\n", "A[a] --> B[b]\n"),
    "numbers that ascend": lambda length: "".join(f"{n}. a\n" for n in range(1, length // 7)),
    "numbers in one line": lambda length: "".join(f"{n}. a " for n in range(1, length // 7)),
}  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PARSERS)
def test_time_grows_with_the_length_and_no_faster(name: str) -> None:
    parser = PARSERS[name]
    growths = {
        label: faster_than_linear(partial(parser, text(LENGTH)), partial(parser, text(2 * LENGTH)))
        for label, text in HOSTILE.items()
    }
    assert not {label: growth for label, growth in growths.items() if growth}


@pytest.mark.parametrize("name", PARSERS)
def test_a_field_at_its_limit_is_read_in_bounded_time(name: str) -> None:
    for label in (
        "one item and blank lines",
        "inner quotes",
        "an open string of escapes",
        repr('\\"'),
        repr("1. a\n"),
    ):
        assert seconds(partial(PARSERS[name], HOSTILE[label](LONGEST))) < 3
