"""Answers as models write them, with what a careful reader reads in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dramaturg.judge.steps import split_steps
from services.generation.edges.prediction import read_yes_no
from tests.answers import parsers, templates

SMALLEST = 300
"""The minimum number of answers of a kind."""


def _graph(text: str) -> Any:
    read = parsers.read_graph(text)
    return None if read is None else [[[*edge] for edge in read[0]], read[1]]


READERS: dict[str, Callable[[str], Any]] = {
    "criterion_verdict": parsers.read_verdict,
    "rating": parsers.read_rating,
    "pair_vote": parsers.read_vote,
    "decision_choice": parsers.read_decision,
    "yes_no": read_yes_no,
    "challenge_turn": parsers.read_turn,
    "rubric": parsers.read_rubric,
    "user_turn": parsers.read_user_turn,
    "roles": parsers.read_roles,
    "written_script": parsers.read_script,
    "graph": _graph,
    "script_steps": lambda text: [*split_steps(text)] or None,
}


def answers(kind: str) -> list[dict[str, Any]]:
    return templates.corpus()[kind]


def _is_guess(found: Any, label: Any) -> bool:
    """Whether a value is not the labelled one. Of a rubric, each criterion has one."""
    if isinstance(found, dict) and isinstance(label, dict):
        return any(value not in (None, label[name]) for name, value in found.items())
    return found not in (None, label)


@pytest.mark.parametrize("kind", READERS)
def test_no_answer_is_guessed(kind: str) -> None:
    read = [(row["text"], row["read"], READERS[kind](row["text"])) for row in answers(kind)]
    assert not [row for row in read if _is_guess(row[2], row[1])]


@pytest.mark.parametrize("kind", READERS)
def test_every_answer_in_a_documented_form_is_read(kind: str) -> None:
    for row in answers(kind):
        is_read = READERS[kind](row["text"]) == row["read"] is not None
        assert is_read is (row["read"] is not None and "asked_again" not in row), row["text"]


@pytest.mark.parametrize("kind", READERS)
def test_a_kind_has_enough_answers_of_both_sorts(kind: str) -> None:
    sorts = Counter(row["read"] is None for row in answers(kind))
    assert sum(sorts.values()) >= SMALLEST
    assert min(sorts[True], sorts[False]) >= 20
