"""Answers in a pytest suite: pytest examples/integrations/test_answers.py --judge-report judgements.jsonl.

Without a model, in CI: pytest examples/integrations/test_answers.py --judge-replay judgements.jsonl.
"""

import json
from pathlib import Path

import pytest

from dramaturg.integrations.pytest_plugin import Judge

HERE = Path(__file__).parent
ROWS = [json.loads(line) for line in (HERE / "answers.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", ROWS)
def test_an_answer_is_polite_and_clear(judge: Judge, row: dict[str, str]) -> None:
    result = judge.evaluate(row["answer"], criteria=HERE / "rubric.toml", goal=row["question"])
    assert result["polite"].passed, result["polite"].explanation
    clear = result["clear"].value
    assert clear is not None, result["clear"].explanation
    assert clear >= 0.5, result["clear"].label


def test_the_greeting_is_polite(judge: Judge) -> None:
    judge.assert_passes(
        "Hello! What can we do for you?", criteria={"polite": "The text greets the customer."}
    )
