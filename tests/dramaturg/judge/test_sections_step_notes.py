"""The notes on steps in an answer of a model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import StepNote
from dramaturg.judge.answers import STEP_NOTES, VerdictsForm
from dramaturg.judge.sections import SHAPE, read_step_notes

PASS, FAIL = verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL


def test_notes_are_read_by_step() -> None:
    walk = [
        {"step": 2, "needs": "a pan", "after": "a hot pan", "possible": "Yes."},
        {"step": 1, "possible": "no"},
    ]
    assert read_step_notes(walk, 2) == [
        StepNote(step_index=0, outcome=FAIL),
        StepNote(step_index=1, needs="a pan", leaves="a hot pan", outcome=PASS),
    ]


@pytest.mark.parametrize(
    "entry",
    ["heat the pan", {}, {"step": 0}, {"step": 3}, {"step": True}, {"step": "1"}, {"step": None}, None, [1]],
)
def test_an_entry_without_a_known_step_is_left_out(entry: Any) -> None:
    assert read_step_notes([entry, {"step": 1, "needs": 5}], 2) == [StepNote(step_index=0)]


@pytest.mark.parametrize("possible", ["maybe yes, maybe no", "yes or no", "", "it depends", 1])
def test_an_unclear_word_states_nothing(possible: Any) -> None:
    [note] = read_step_notes([{"step": 1, "possible": possible}], 1)
    assert note.outcome == verdict_pb2.OUTCOME_UNSPECIFIED


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["step", "needs", "after", "possible"]), inner, max_size=4)
    ),
)


@given(json_values, st.integers(0, 3))
def test_any_value_gives_at_most_one_note_a_step(value: Any, count: int) -> None:
    steps = [note.step_index for note in read_step_notes(value, count)]
    assert steps == sorted(set(steps))
    assert all(step < count for step in steps)


def test_steps_that_can_be_done_need_no_note() -> None:
    schema = SHAPE.schema()
    assert schema["maxItems"] == 20
    assert [*schema["items"]["properties"]] == ["step", "needs", "possible"]
    assert schema["items"]["properties"]["possible"]["enum"] == ["yes", "no", "unsure"]
    assert "enum" not in json.dumps(SHAPE.schema(accepted=True)), "one word does not invalidate the answer"


def test_the_first_note_of_a_step_counts_and_verdicts_stand_beside() -> None:
    form = VerdictsForm.of(["executable"], step_count=1, constraints=(), reasoning={STEP_NOTES: SHAPE})
    answer = {
        "walk": [{"step": 1, "needs": "a"}, {"step": 1, "needs": "b"}],
        "executable": {"reason": "It works.", "findings": [], "verdict": "pass"},
    }
    verdicts = form.parse(answer)
    assert [note.needs for note in verdicts.step_notes] == ["a"]
    assert len(verdicts) == 1
    assert form.parse({"executable": answer["executable"]}).step_notes == []
