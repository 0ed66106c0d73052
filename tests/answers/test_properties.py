"""Mangling never changes a value into another. Drawn texts are tried in ``tests.hostile``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.answers import parsers, test_corpus
from tests.answers.test_corpus import answers

RUBRIC = {"rubric_outcome": "polite", "rubric_score": "clear"}
"""The criteria of rubrics, each as a kind of its own."""


def of_criterion(name: str) -> Callable[[str], Any]:
    return lambda text: (parsers.read_rubric(text) or {}).get(name)


READERS = {**test_corpus.READERS, **{kind: of_criterion(name) for kind, name in RUBRIC.items()}}
LABELLED = {kind: [row for row in answers(kind) if row["read"] is not None] for kind in test_corpus.READERS}
for kind, name in RUBRIC.items():
    read = [{**row, "read": row["read"][name]} for row in LABELLED["rubric"]]
    LABELLED[kind] = [row for row in read if row["read"] is not None]
CLEAR = {kind: [row for row in found if "asked_again" not in row] for kind, found in LABELLED.items()}
"""The answers in a documented form."""
VALUES = (*RUBRIC, "criterion_verdict", "rating", "pair_vote", "decision_choice", "yes_no", "challenge_turn")
"""The kinds whose value is a word or a number, and not the text itself."""

Mangle = Callable[[str, int], str]


def cut(text: str, place: int) -> str:
    """A part of JSON; a part of prose may be an answer of its own."""
    return text[: place % (len(text) + 1)] if text.lstrip().startswith("{") else text


WRAPPED: dict[str, Mangle] = {
    "spaces around": lambda text, _: f"  \n{text}\n  ",
    "a byte order mark": lambda text, _: f"\ufeff{text}",
    "carriage returns": lambda text, _: text.replace("\n", "\r\n"),
    "a fence": lambda text, _: f"```\n{text}\n```",
    "a named fence": lambda text, _: f"```json\n{text}\n```",
    "a greeting": lambda text, _: f"Sure!\n\n{text}",
    "a farewell": lambda text, _: f"{text}\n\nI hope this helps.",
    "reasoning": lambda text, _: f"<think>\nLet me see.\n</think>\n\n{text}",
    "open reasoning": lambda text, _: f"<think>\n{text}",
    "trailing white space": lambda text, _: text.replace("\n", "  \n") + "\t",
}
EDITED: dict[str, Mangle] = {
    "cut": cut,
    "capitals": lambda text, _: text.upper(),
    "small letters": lambda text, _: text.lower(),
    "twice": lambda text, _: f"{text}\n\n{text}",
    "without a character": lambda text, at: text[: at % len(text)] + text[at % len(text) + 1 :],
    "a character twice": lambda text, at: text[: at % len(text) + 1] + text[at % len(text) :],
    "two characters exchanged": lambda text, at: (
        text[: at % len(text)] + text[at % len(text) : at % len(text) + 2][::-1] + text[at % len(text) + 2 :]
    ),
    "single quotation marks": lambda text, _: text.replace('"', "'"),
    "typographic quotation marks": lambda text, _: re.sub('"([^"]*)"', "\u201c\\1\u201d", text),
    "no quotation marks": lambda text, _: text.replace('"', ""),
    "no commas": lambda text, _: text.replace(",", ""),
    "trailing commas": lambda text, _: text.replace("}", ",}"),
    "a comment": lambda text, _: text.replace("}", "} // done", 1),
    "one line": lambda text, _: " ".join(text.split()),
    "bold": lambda text, _: f"**{text}**",
    "in quotation marks": lambda text, _: f'"{text}"',
    "escaped": lambda text, _: text.replace('"', '\\"'),
    "no closing brackets": lambda text, _: text.replace("}", "").replace("]", ""),
    "zero-width spaces": lambda text, at: text[: at % len(text)] + "\u200b" + text[at % len(text) :],
    "a bracket more": lambda text, _: text + "}",
}


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("name", WRAPPED)
def test_what_stands_around_an_answer_changes_nothing(kind: str, name: str) -> None:
    for row in CLEAR[kind][::7]:
        if "fence" in name and "```" in row["text"]:
            continue  # A fence within a fence ends it.
        text = WRAPPED[name](row["text"], 0)
        found = READERS[kind](text)
        assert found in (row["read"], None), text


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", EDITED)
def test_a_mangled_answer_has_the_same_value_or_none(kind: str, name: str) -> None:
    for index, row in enumerate(LABELLED[kind][:: 1 + len(name) % 2]):
        text = EDITED[name](row["text"], index * 17)
        assert READERS[kind](text) in (row["read"], None), text


def stands(value: Any, text: str) -> bool:
    """Whether a number stands in a text by itself: not as a part of another one, and not as a total."""
    number = rf"(?<![\w.,/-])(?<!/\s)(?<!of\s){value}(?![\w,%/-]|\.\d*[1-9])(?!\s?/(?!\s?10))"
    return isinstance(value, int) and re.search(number, text) is not None


def labelled_answers(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from(LABELLED[kind])


ANY_EDITS = st.lists(
    st.tuples(st.sampled_from([*WRAPPED, *EDITED]), st.integers(-20, 1000)), min_size=1, max_size=3
)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(VALUES).flatmap(lambda kind: st.tuples(st.just(kind), labelled_answers(kind))), ANY_EDITS
)
def test_several_edits_give_the_same_value_or_none(
    answer: tuple[str, dict[str, Any]], edits: Sequence[tuple[str, int]]
) -> None:
    kind, row = answer
    text = row["text"]
    for name, place in edits:
        text = ({**WRAPPED, **EDITED})[name](text or " ", place)
    found = READERS[kind](text)
    # Without "4/", the answer "4/10" is the clear answer 10; without "4" alone it is none.
    is_other_answer = not stands(row["read"], text) and stands(found, text)
    assert found in (row["read"], None) or is_other_answer, text


NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
STATED: dict[str, Callable[[Any], str]] = {
    "criterion_verdict": lambda value: value,
    "rubric_outcome": lambda value: value,
    "rubric_score": lambda value: rf"{value}|{NUMBERS[value]}",
    "rating": lambda value: rf"{value}|{NUMBERS[value]}",
    "challenge_turn": lambda value: rf"{value}|{NUMBERS[value]}",
    "pair_vote": lambda value: (
        r"tie|draw|neither|both|equal" if value == "tie" else rf"{value}|{'one' if value == '1' else 'two'}"
    ),
    "decision_choice": lambda value: {
        1: r"1|one|first|call the library",
        2: r"2|two|second|search online",
        3: r"3|three|either|both|difference|matter|equal|same|preference",
    }[value],
    "yes_no": lambda value: "yes" if value else "no",
}
PIECES = [
    "1", "2", "3", "8", "10", "7", ".", ",", ":", "-", "/", "/10", " ", "\n", "{", "}", "[[", "]]", '"', "'",
    "\\", "\\boxed{", '"rating"', '"reason"', '"vote"', '"turn"', '"verdict"', '"no_duplicate_steps"',
    '"polite"', '"clear"', '"score"', '"scored"', '"findings"', "[]", "rating", "Rating:", "Turn:", "Vote:",
    "Verdict:", "pass", "fail", "PASS", "unsure", "tie", "Text 1", "text 2", "Option 1", "option 2",
    "either", "both", "yes", "no", "Yes.", "not", "or", "and", "because", "is", "better", "<think>",
    "</think>", "```", "Answer:", "?", '{"reason": "x", "rating": ', '{"reason": "x", "vote": "',
    '{"no_duplicate_steps": {"verdict": "', '{"polite": {"verdict": "',
    '{"clear": {"verdict": "scored", "score": ', '"}', '"}}', "true", "null",
]  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("text", ['{"reason": "x", "rating": 7 or 8}', "<think>Rating: 7"])
def test_a_value_stands_in_the_answer(kind: str, text: str) -> None:
    value = READERS[kind](text)
    assert value is None or re.search(STATED[kind](value), text, re.IGNORECASE)
