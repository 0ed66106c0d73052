"""Which answers decline in prose, on sentences of which half were written before the detector."""

from __future__ import annotations

from pathlib import Path

import pytest

from dramaturg.judge.refusals import MAX_LENGTH, is_refusal

FOLDER = Path(__file__).parents[2] / "answers" / "refusals"


def sentences(name: str) -> list[str]:
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n") for line in lines]


@pytest.mark.parametrize(("part", "least"), [("development", 0.97), ("held_out", 0.75)])
def test_most_refusals_are_recognised(part: str, least: float) -> None:
    refusals = sentences(f"refusals_{part}")
    assert len(refusals) >= 150
    assert sum(map(is_refusal, refusals)) / len(refusals) >= least


@pytest.mark.parametrize("part", ["development", "held_out"])
def test_an_answer_that_mentions_inability_is_none(part: str) -> None:
    answers = sentences(f"answers_{part}")
    assert len(answers) >= 150
    assert [answer for answer in answers if is_refusal(answer)] == []


@pytest.mark.parametrize(
    "text", ["", "   ", "Option 1", "I can't help with that. " + "It is late. " * MAX_LENGTH]
)
def test_these_are_none(text: str) -> None:
    assert not is_refusal(text)


def test_reasoning_and_emphasis_are_not_read() -> None:
    assert is_refusal("<think>Option 1 is better.</think>**I'm sorry, but I can’t assist with that.**")
    assert not is_refusal("<think>I can't help with that.</think>Option 1")
