"""From a model's text to JSON of a form: what is read, what is refused, and what never happens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generation.answers.forms import InvalidSchemaError, JsonForm
from services.generation.answers.reader import parse_answer

VERDICT = {
    "type": "object",
    "properties": {
        "rationale": {"type": "string"},
        "findings": {"type": "array", "items": {"$ref": "#/$defs/finding"}},
        "outcome": {"enum": ["PASS", "FAIL"]},
        "sure": {"type": "boolean"},
        "score": {"type": ["number", "null"]},
        "step": {"type": "integer"},
    },
    "required": ["outcome"],
    "additionalProperties": False,
    "$defs": {
        "finding": {
            "type": "object",
            "properties": {"step": {"type": "integer"}, "text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        }
    },
}
FORM = JsonForm("verdict", json.dumps(VERDICT))


def read(text: str) -> str | None:
    return parse_answer(text, FORM).json


@pytest.mark.parametrize(
    ("text", "expected", "repairs"),
    [
        ('{"outcome":"PASS"}', '{"outcome":"PASS"}', []),
        ('\ufeff {"outcome": "PASS"}\n', '{"outcome":"PASS"}', []),
        ('{"outcome":"PASS","rationale":"r"}', '{"rationale":"r","outcome":"PASS"}', []),
        ('```json\n{"outcome":"PASS"}\n```', '{"outcome":"PASS"}', ["code-fence-removed"]),
        ('```\n{"outcome":"PASS"}```', '{"outcome":"PASS"}', ["code-fence-removed"]),
        ('So:\n```json\n{"outcome":"PASS"}\n```\nDone.', '{"outcome":"PASS"}', ["code-fence-removed"]),
        ('Steps {1, 2} are fine: {"outcome":"PASS"}', '{"outcome":"PASS"}', ["prose-removed"]),
        ('{"outcome":"PASS"} and again {"outcome": "PASS"}', '{"outcome":"PASS"}', ["prose-removed"]),
        ('{"outcome":"PASS","outcome":"PASS"}', '{"outcome":"PASS"}', ["duplicate-removed"]),
        ('{"outcome":"PASS",}', '{"outcome":"PASS"}', ["comma-repaired"]),
        (
            '{"rationale":"a, }","outcome":"PASS",}',
            '{"rationale":"a, }","outcome":"PASS"}',
            ["comma-repaired"],
        ),
        ('[{"outcome":"PASS"}]', '{"outcome":"PASS"}', ["wrapper-removed"]),
        ('{"answer":{"outcome":"PASS"}}', '{"outcome":"PASS"}', ["wrapper-removed"]),
        ('{"outcome":"PASS","extra":1}', '{"outcome":"PASS"}', ["member-removed"]),
        ('{"Outcome":"pass."}', '{"outcome":"PASS"}', ["member-renamed", "option-recognised"]),
        ('<think>{"outcome":"FAIL"}</think> {"outcome":"PASS"}', '{"outcome":"PASS"}', ["prose-removed"]),
        ("{'outcome': 'PASS', 'sure': True}", '{"outcome":"PASS","sure":true}', ["json-repaired"]),
        (
            '{"rationale": "says "hi"", "outcome": "PASS"}',
            '{"rationale":"says \\"hi\\"","outcome":"PASS"}',
            ["json-repaired"],
        ),
        ('{"rationale": "a"\n "outcome": "PASS"}', '{"rationale":"a","outcome":"PASS"}', ["json-repaired"]),
        ('{"outcome":"PASS","sure":"FALSE"}', '{"outcome":"PASS","sure":false}', ["string-to-boolean"]),
        ('{"outcome":"PASS","score":"0.5"}', '{"outcome":"PASS","score":0.5}', ["string-to-number"]),
        ('{"outcome":"PASS","score":"null"}', '{"outcome":"PASS","score":null}', ["string-to-null"]),
        ('{"outcome":"PASS","step":3.0}', '{"outcome":"PASS","step":3}', ["number-to-integer"]),
        (
            '{"outcome":"FAIL","findings":[{"text":"t","step":"3"}]}',
            '{"findings":[{"step":3,"text":"t"}],"outcome":"FAIL"}',
            ["string-to-number"],
        ),
        ('{"outcome":"PASS","rationale":"第三步 ✓"}', '{"rationale":"第三步 ✓","outcome":"PASS"}', []),
    ],
)
def test_what_is_clear_is_read(text: str, expected: str, repairs: list[str]) -> None:
    reading = parse_answer(text, FORM)
    assert reading.json == expected, reading.error
    assert list(reading.repairs) == repairs


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no JSON"),
        ("PASS", "no JSON"),
        ('{"outcome":"PASS"} or {"outcome":"FAIL"}', "disagree"),
        ('{"outcome":"PASS"} or {"outcome":"FAIL",}', "disagree"),
        ('```json\n{"outcome":"PASS"}\n```\n```json\n{"outcome":"FAIL"}\n```', "disagree"),
        ('{"outcome":"PASS","outcome":"FAIL"}', "is repeated"),
        ("{'outcome':'PASS','outcome':'FAIL'}", "is repeated"),
        ('{"rationale": "x", "outcome": "PASS" or "FAIL"}', "PASS"),
        ('{"outcome": "PASS", "FAIL"}', "PASS"),
        ('{"outcome": "PASS", "step": 7 or 8}', "cannot be read"),
        ('{"outcome": "PASS", "step": 7, 8}', "cannot be read"),
        ('{"outcome": "PASS", "step": 7 - 1}', "cannot be read"),
        ('{"outcome": "PASS", "step": 7-8}', "cannot be read"),
        ('{"outcome": "PASS", "step": 8 7}', "cannot be read"),
        ('{"outcome": "PASS", "step": 1 0}', "cannot be read"),
        ('{"outcome": "PASS" /* or FAIL */}', "left open"),
        ('{"outcome": "PASS"}, "outcome": "FAIL"}', "outside of its brackets"),
        ('{"outcome": "PASS"} My own outcome is FAIL.', "may state another"),
        ('So <think> {"outcome": "PASS"}', "no JSON"),
        ('{"findings":[{"text":"a"},{"text":"b"', "cut off"),
        ('{"findings":[{"text":"a"}], "outcome": "PASS"', "cut off"),
        ('{"outcome":"PASS" then the line broke', "cut off"),
        ('{"outcome":"MAYBE"}', "MAYBE"),
        ('{"rationale":"r"}', "'outcome' is a required property"),
        ('{"outcome":"PASS","final_outcome":"FAIL"}', "'outcome' and 'final_outcome' disagree"),
        ('{"outcome":"PASS","sure":"yes"}', "sure"),
        ('{"outcome":"PASS","sure":1}', "sure"),
        ('{"outcome":"PASS","step":3.5}', "step"),
        ('{"outcome":"PASS","step":"3 or 4"}', "step"),
        ('{"outcome":"PASS","score":NaN}', "NaN"),
        ('{"outcome":"PASS","score":1e999}', "too large"),
        ('{"outcome":"PASS","score":"1e999"}', "score"),
        ('[{"outcome":"PASS"}, {"outcome":"PASS"}]', "not of type 'object'"),
        ('{"outcome":"PASS","rationale":"\\ud83d"}', "surrogate"),
        ('{"a":' * 100_000, ""),
        ("[" * 100_000, ""),
        ("{" * 200_000 + "}" * 200_000, ""),
    ],
)
def test_what_is_not_clear_is_refused(text: str, error: str) -> None:
    reading = parse_answer(text, FORM)
    assert reading.json is None
    assert reading.error
    assert error in reading.error


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        '{"a}' * 50_000,
        '{"outcome": "' + '\\"' * 100_000 + "}",
        "{'outcome': 'PASS', " + "'x': 'y', " * 15_000 + "} or {'outcome': 'FAIL'}",
        "{outcome: PASS " + "word " * 4_000 + "}",
        '{"outcome": "' + 'x":' * 6_000 + "}",
        "{" + '"' * 200_000 + "}",
        "<think>" * 30_000,
        "{" * 200_000,
        "{}" * 100_000,
    ],
    ids=lambda text: str(text[:12]),
)
def test_hostile_text_is_refused_in_bounded_time(text: str) -> None:
    assert parse_answer(text, FORM).error


def test_the_order_of_members_is_the_schema_s() -> None:
    assert read('{"outcome":"PASS","sure":true,"rationale":"r"}') == (
        '{"rationale":"r","outcome":"PASS","sure":true}'
    )


findings = st.lists(
    st.fixed_dictionaries({"text": st.text(max_size=20)}, optional={"step": st.integers()}), max_size=3
)
verdicts = st.fixed_dictionaries(
    {"outcome": st.sampled_from(["PASS", "FAIL"])},
    optional={
        "rationale": st.text(max_size=40),
        "findings": findings,
        "sure": st.booleans(),
        "score": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "step": st.integers(),
    },
)
WHOLE = ['{"outcome":"PASS"}', '{"outcome": "FAIL"', "{}", "```json\n", "```", "<think>", "</think>"]
PARTS = [
    "}",
    "{",
    "[",
    "]",
    '"',
    ",",
    ":",
    "true",
    "outcome",
    "'",
    "\\",
    "\n",
    "NaN",
    "1e999",
    "\ud800",
    "null",
    "//",
]
pieces = st.sampled_from(WHOLE + PARTS)


@settings(deadline=None)
@given(st.lists(pieces | st.text(max_size=5), max_size=12).map("".join))
def test_nothing_is_ever_raised_and_nothing_unfit_is_ever_returned(text: str) -> None:
    reading = parse_answer(text, FORM)
    assert (reading.json is None) == bool(reading.error)
    if reading.json is not None:
        reading.json.encode()
        value = json.loads(reading.json, parse_constant=pytest.fail)
        assert FORM.violation(value) == ""


@settings(deadline=None)
@given(verdicts)
def test_clean_json_is_read_without_repair_and_reading_again_changes_nothing(verdict: dict[str, Any]) -> None:
    reading = parse_answer(json.dumps(verdict), FORM)
    assert not reading.error
    assert not reading.repairs
    assert reading.json is not None
    assert json.loads(reading.json) == verdict
    assert parse_answer(reading.json, FORM) == reading


@settings(deadline=None)
@given(
    verdicts, st.sampled_from(["```json\n{}\n```", "```\n{}\n```", "{}", "Well. {}", "{}\n\nThat is all."])
)
def test_wrapping_changes_nothing(verdict: dict[str, Any], wrapper: str) -> None:
    written = json.dumps(verdict)
    assert read(wrapper.replace("{}", written)) == read(written)


@settings(deadline=None)
@given(verdicts, verdicts)
def test_two_answers_are_never_chosen_between(one: dict[str, Any], other: dict[str, Any]) -> None:
    together = read(f"{json.dumps(one)}\n{json.dumps(other)}")
    assert together == (read(json.dumps(one)) if one == other else None)


def test_a_bracket_in_a_text_that_was_cut_off_ends_nothing() -> None:
    assert read('{"outcome": "PASS", "rationale": "}') is None


@settings(deadline=None)
@given(verdicts.filter(lambda verdict: len(verdict) > 1), st.data())
def test_a_cut_answer_is_never_completed(verdict: dict[str, Any], data: st.DataObject) -> None:
    written = json.dumps(verdict)
    cut = data.draw(st.integers(1, len(written) - 1))
    assert read(written[:cut]) is None


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        ('{"type": "strange"}', "no JSON Schema"),
        ('{"$ref": "https://example.com/schema"}', "names nothing"),
        ('{"$ref": "#/$defs/absent"}', "names nothing"),
        ('{"a":' * 50_000, "JSON"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: str, error: str) -> None:
    with pytest.raises(InvalidSchemaError, match=error):
        JsonForm("form", schema)


def test_a_schema_that_refers_to_itself_for_ever_gives_an_error_not_a_crash() -> None:
    form = JsonForm("form", '{"$ref": "#"}')
    assert parse_answer('{"a": 1}', form).error


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "array", "items": {"type": "integer"}}, 'The list: [1, "2"]', "[1,2]"),
        ({"type": "integer"}, " 7 ", "7"),
        ({}, '{"free": ["form"]}', '{"free":["form"]}'),
    ],
)
def test_other_forms_than_objects_are_read(schema: dict[str, Any], text: str, expected: str) -> None:
    assert parse_answer(text, JsonForm("form", json.dumps(schema))).json == expected


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (VERDICT, False),
        ({**VERDICT, "required": [*VERDICT["properties"]], "$defs": {}}, True),  # type: ignore[misc]
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
    ],
)
def test_a_form_is_strict_where_objects_are_closed_and_complete(schema: dict[str, Any], strict: bool) -> None:
    if strict:
        schema = json.loads(json.dumps(schema).replace("#/$defs/finding", "#/properties/rationale"))
    assert JsonForm("form", json.dumps(schema)).is_strict is strict


SECTION = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "verdict": {"type": "string", "enum": ["pass", "fail"]}},
    "required": ["reason", "verdict"],
    "additionalProperties": False,
}
SECTIONS = {
    "type": "object",
    "properties": {"a": SECTION, "b": SECTION},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def test_an_accepted_schema_decides_which_members_may_be_missing() -> None:
    accepted = json.loads(json.dumps(SECTIONS).replace('["reason", "verdict"]', '["verdict"]'))
    strict = JsonForm("sections", json.dumps(SECTIONS))
    weaker = JsonForm("sections", json.dumps(SECTIONS), json.dumps(accepted))
    without_reasons = '{"a":{"verdict":"pass"},"b":{"verdict":"fail"}}'
    assert parse_answer(without_reasons, strict).json is None
    assert parse_answer(without_reasons, weaker).json == without_reasons
    partial = '{"a":{"verdict":"pass"},"b":{"verdict":"perhaps"}}'
    assert parse_answer(partial, weaker).json is None
    last = parse_answer(partial, weaker, is_last=True)
    assert last.json == '{"a":{"verdict":"pass"}}'
    assert "part-removed" in last.repairs
    assert parse_answer('{"b":{"verdict":"perhaps"}}', weaker, is_last=True).json is None
    assert parse_answer(partial, strict, is_last=True).json is None


def test_a_text_is_accepted_at_any_length() -> None:
    accepted = json.dumps(SECTIONS)
    bounded = accepted.replace('"reason": {"type": "string"}', '"reason": {"type": "string", "maxLength": 9}')
    assert bounded != accepted
    section = {"reason": "longer than that", "verdict": "pass"}
    text = json.dumps({"a": section, "b": section}, separators=(",", ":"))
    assert parse_answer(text, JsonForm("sections", bounded, accepted)).json == text
    assert parse_answer(text, JsonForm("sections", bounded)).json is None
