"""Plain values are read without protobuf's JSON parser, and as it would read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.datasets import Format, Row, requests
from dramaturg.datasets.requests import read_plain, read_request
from dramaturg.service.errors import Violation
from gateway.evaluations.kinds import RUN_KINDS
from tests.dramaturg.datasets.json_values import json_values, message_types
from tests.support.datasets import read, written

MESSAGES = message_types()
REQUESTS = {name: kind.request_type for name, kind in RUN_KINDS.items()}

every_request = pytest.mark.parametrize("kind", REQUESTS.values(), ids=REQUESTS)
every_kind = pytest.mark.parametrize(
    "kind", [*REQUESTS.values(), *MESSAGES.values()], ids=[*REQUESTS, *MESSAGES]
)
faults_in_100 = st.sampled_from([0, 2, 10])


def as_bytes(message: Message) -> bytes:
    return message.SerializePartialToString(deterministic=True)


def parsed(value: Any, kind: type[Message]) -> bytes | None:
    """What protobuf's parser makes of a value. None: it refuses it."""
    try:
        return as_bytes(ParseDict(value, kind()))
    except Exception:
        return None


def outcome(value: Any, kind: type[Message]) -> bytes | Sequence[Violation]:
    found = read_request(value, kind)
    return as_bytes(found) if isinstance(found, Message) else found


def outcome_of_the_parser(value: Any, kind: type[Message]) -> bytes | Sequence[Violation]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "read_plain", lambda *_: None)
        return outcome(value, kind)


@every_kind
@given(data=st.data(), faults=faults_in_100)
def test_a_plain_value_is_read_as_the_parser_reads_it(
    kind: type[Message], data: st.DataObject, faults: int
) -> None:
    value = data.draw(json_values(kind, faults))
    found = read_plain(value, kind)
    assert found is None or as_bytes(found) == parsed(value, kind)


@every_request
@given(data=st.data(), faults=faults_in_100)
def test_requests_and_faults_are_those_of_the_parser(
    kind: type[Message], data: st.DataObject, faults: int
) -> None:
    value = data.draw(json_values(kind, faults))
    assert outcome(value, kind) == outcome_of_the_parser(value, kind)


@every_request
@given(data=st.data(), in_json=st.booleans())
def test_whatever_protobuf_writes_is_plain(
    kind: type[Message], data: st.DataObject, *, in_json: bool
) -> None:
    request = ParseDict(data.draw(json_values(kind)), kind())
    assert read_plain(MessageToDict(request, preserving_proto_field_name=not in_json), kind) == request


@pytest.mark.parametrize("form", Format)
def test_plain_rows_never_reach_the_parser(form: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(requests, "ParseDict")
    request = EvaluateScriptsRequest()
    request.task.id, request.task.goal = "17", "Make tea"
    request.options.repeat_index, request.options.sampling.temperature = 3, 0.5
    request.mechanism = scripts_pb2.MECHANISM_SINGLE_JUDGE
    for index in range(8):
        candidate = request.candidates.add(id=f"c{index}", model="writer")
        for step in range(10):
            candidate.script.steps.add(text=f"Step {step}", duration_minutes=step)
    (row,), _ = read(written([request], form), form)
    assert isinstance(row, Row)
    assert row.request == request


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"candidates": [{"text": "1.", "script": {}}]}, 'should not have multiple "content" oneof fields'),
        (
            {"options": {"sampling": {"topP": 1, "top_p": 1}}},
            'should not have multiple "_top_p" oneof fields',
        ),
        ({"options": {"sampling": {"temperature": 1e400}}}, "Couldn't parse Infinity or value too large"),
        ({"options": {"repeatIndex": True}}, "Bool value True is not acceptable for integer field"),
        ({"options": {"repeatIndex": "Invalid enum value A for enum type B"}}, "Invalid enum value A for"),
        ({"options": {"repeatIndex": 2**32}}, "Value out of range: 4294967296"),
        ({"mechanism": "MECHANISM_NONE"}, 'is "MECHANISM_NONE"; it must be one of MECHANISM_AGENTS, '),
        ({"task": {"goal": "\ud800"}}, "Unpaired surrogate"),
        ({"task": {"goal": 1}}, "expected string or bytes-like object"),
        ({"task": {"goal": {}}}, "is an object, where a single value belongs"),
        ({"mechanism": {"id": "t"}}, "is an object, where a single value belongs"),
        ({"mechanism": []}, "is a list, where a single value belongs"),
        ({"task": "tea"}, "there is no such field"),
        ({"unknown": None}, "there is no such field"),
    ],
)
def test_the_parser_says_what_is_wrong(value: Any, expected: str) -> None:
    assert read_plain(value, EvaluateScriptsRequest) is None
    found = read_request(value, EvaluateScriptsRequest)
    assert not isinstance(found, Message)
    assert [expected in description for _, description in found] == [True]


@pytest.mark.parametrize(
    "value",
    [
        {"aString": b"a"},
        {"texts": {1: "a"}},
        {"aFloat": 3.5e38},
        {"aFloat": 0.1},
        {"someBytes": "aGk="},
        {"textAt": {"1": "a"}},
        {"textIf": {"true": "a"}},
        {"innerOf": {"a": {}}},
        {"aTree": {"branches": []}},
        {"duration": {}},
        {"wrappedString": {}},
        {"chosenNull": None},
        {"value": None},
    ],
)
def test_what_the_constructor_might_take_for_something_else_is_not_plain(value: Any) -> None:
    assert read_plain(value, MESSAGES["EveryKind"]) is None
