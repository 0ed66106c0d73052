"""Whatever JSON a model answers with, a form reads it or says that it cannot."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.judge.answers import AnswerForm, UnclearAnswerError
from services.generation.authoring.decisions import PhraseForm, ProfileForm
from services.generation.authoring.dialogues import SimulationTaskForm, UserTurnForm
from services.generation.authoring.graphs import ScriptGraphForm
from services.generation.edges.prediction import EdgesForm

FORMS: list[AnswerForm[Any]] = [
    EdgesForm({1: "a", 2: "b"}),
    PhraseForm(),
    ProfileForm(),
    ScriptGraphForm(),
    SimulationTaskForm(),
    UserTurnForm(""),
    UserTurnForm("Answer."),
]
NAMES = [
    *("idea", "scenario", "profile", "reasoning", "edges", "before", "after", "events", "number", "event"),
    *("name", "description", "request_type", "strategy", "utterance"),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
@given(value=VALUES)
def test_any_json_is_read_or_unclear(form: AnswerForm[Any], value: Any) -> None:
    with suppress(UnclearAnswerError):
        assert form.parse(value)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_reasons_come_first_and_every_object_is_closed(form: AnswerForm[Any]) -> None:
    schema = form.shape.schema()
    assert schema["additionalProperties"] is False
    first = next(iter(schema["properties"]))
    assert first in {"idea", "reasoning", "strategy", "utterance"}
