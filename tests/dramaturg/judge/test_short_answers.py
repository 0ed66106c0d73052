"""Only a value in one of the documented forms, outside of reasoning, is the value of a short answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.judge.short_answers import CONTINUED, FORMS, MAX_LENGTH, options, options_of, scale

RATING = scale(1, 10)
VERDICT = options(("pass", "fail", "unsure"))
ANSWER = options_of({"yes": True, "no": False}, CONTINUED)
STATED = (
    "[[{}]]",
    "\\boxed{{{}}}",
    "$\\boxed{{\\text{{{}}}}}$",
    "Rating: {}",
    "**My rating is {}.**",
    "{}",
    "**{}**",
    "{}/10",
)
"""Statements of a rating, in each form."""
WORDS = ("the", "rating", "of", "step", "pour", "because", "not", "Rating", "answer", "is", "and", "seven")

numbers = st.integers(1, 10)
statements = st.sampled_from(STATED)
prose = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
reasoning = st.sampled_from(
    ["<think>{}</think>", "<think>{}", "[THINK]{}[/THINK]", "{}</think>", "<reasoning>\n{}\n</reasoning>\n"]
)


@given(numbers, statements, prose)
def test_a_value_in_a_form_is_read(number: int, statement: str, reason: str) -> None:
    assert RATING.value_of(f"{reason}\n\n{statement.format(number)}", "rating") == number


@given(numbers, numbers, statements, statements, prose)
def test_the_last_form_counts_and_none_where_an_earlier_one_differs(
    first: int, last: int, one: str, other: str, reason: str
) -> None:
    text = f"{one.format(first)}\n\n{reason}\n\n{other.format(last)}"
    assert RATING.value_of(text, "rating") == (last if first == last else None)


@given(numbers, numbers, statements, prose)
def test_a_value_that_is_only_named_before_the_last_form_does_not_count(
    named: int, stated: int, statement: str, reason: str
) -> None:
    text = f"{reason} {named} {reason}\n\n{statement.format(stated)}"
    assert RATING.value_of(text, "rating") == stated


@given(numbers, numbers, statements, prose)
def test_another_value_after_the_last_form_leaves_none(
    stated: int, named: int, statement: str, reason: str
) -> None:
    text = f"{statement.format(stated)}\n\n{reason} {named} {reason}"
    assert RATING.value_of(text, "rating") == (stated if stated == named else None)


@given(reasoning, statements, numbers, prose)
def test_reasoning_is_never_read(marks: str, statement: str, number: int, answer: str) -> None:
    assert RATING.value_of(marks.format(statement.format(number)) + answer, "rating") is None


@given(prose, prose, numbers, st.sampled_from(["pass", "fail", "yes", "no", "PASS"]))
def test_prose_that_names_a_value_commits_to_none(before: str, after: str, number: int, word: str) -> None:
    for text in (f"{before} x {number} {after}", f"{before} x {word} {after}", before):
        assert RATING.value_of(text) is None
        assert VERDICT.value_of(text) is None
        assert ANSWER.value_of(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("8.0", 8),
        ("8/10", 8),
        ("8 out of 10", 8),
        ("**8**.", 8),
        ("Final rating: 8/10", 8),
        ("The text is good.\n> Rating: 3\nRating: 8", 8),
        ("> [[3]]\n\nRating: 8", 8),
        ("Rating: 8\n> The score 3 is too low.", 8),
        ('It says "Rating: 3". Rating: 5.\n\nRating: 8', 8),
        ("8/5", None),
        ("8 or 9", None),
        ("8-9", None),
        ("8.5", None),
        ("80%", None),
        ("08", None),
        ("-8", None),
        ("<8", None),
        ("/10", None),
        ("11", None),
        ("8?", None),
        ("8, if the door is open", None),
        ("1. The text is good.", None),
        ("I would rate it 8/10.", None),
        ('It says "Fine. Rating: 8" at the end.', None),
        ("Rating: 8. Or is it?", None),
        ("8" + " " * MAX_LENGTH + "8", None),
    ],
)
def test_a_number_is_read_as_documented(text: str, value: int | None) -> None:
    assert RATING.value_of(text, "rating") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("pass", "pass"),
        ("PASS.", "pass"),
        ("passed", "pass"),
        ("Fail: step 2 repeats step 1.", "fail"),
        ("pass - see above", "pass"),
        ("pass/fail", None),
        ("pass or fail", None),
        ("pass, but fail later", None),
        ("not pass", None),
        ("mostly pass", None),
        ("pass?", None),
        ("passable", None),
        ("", None),
    ],
)
def test_an_option_is_read_as_documented(text: str, value: str | None) -> None:
    assert VERDICT.value_of(text) == value


def test_the_documentation_lists_every_form() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "answers.md").read_text(encoding="utf-8")
    assert [form.name for form in FORMS if f"\n| {form.name} |" not in page] == []


@pytest.mark.parametrize(
    ("text", "value"), [("Text 1.", "1"), ("1", "1"), ("Text 1 - if it were shorter", None)]
)
def test_no_remark_follows_a_numbered_option_in_its_sentence(text: str, value: str | None) -> None:
    assert options(("1", "2", "tie")).value_of(text) == value
