"""The quick way: whatever it lets pass is what the slow way would have made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.generation.answers.forms import JsonForm, UncertainError, compile_schema
from services.generation.answers.reader import conform

NAMES = st.sampled_from(["a", "b", "c", "reason"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(-3, 3)
    | st.sampled_from(["pass", "fail", "true", "3", "null", ""])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def objects(members: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return members.flatmap(
        lambda parts: st.builds(
            lambda required: {
                "type": "object",
                "properties": parts,
                "required": required,
                "additionalProperties": False,
            },
            st.lists(st.sampled_from(sorted(parts)), unique=True) if parts else st.just([]),
        )
    )


def bounds(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    limits = st.fixed_dictionaries(
        {}, optional={"minimum": st.integers(-2, 2), "maximum": st.integers(-2, 2)}
    )
    return limits.map(lambda said: {"type": kind, "description": "a number", **said})


SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.sampled_from(
        [
            dict[str, Any](type="string"),
            {"type": "string", "maxLength": 2},
            {"type": "string", "minLength": 1, "description": "a text"},
            {"type": "string", "enum": ["pass", "fail"]},
            {"type": "boolean"},
            {"type": "null", "title": "nothing"},
            {"type": "integer", "enum": [1, 2]},
            {"type": ["string", "null"]},
            {"const": 3},
        ]
    )
    | bounds("integer")
    | bounds("number"),
    lambda inner: (
        objects(st.dictionaries(NAMES, inner, max_size=3))
        | inner.map(lambda item: {"type": "array", "items": item, "maxItems": 2})
        | inner.map(lambda item: {"type": "array", "items": item, "minItems": 1})
    ),
    max_leaves=6,
).filter(lambda schema: schema.get("type") in ("object", "array"))


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a schema of the judges' kind as they are."""
    kind = schema["type"]
    if kind == "object":
        members = {name: fitting(part) for name, part in schema["properties"].items()}
        return st.permutations(sorted(members)).flatmap(
            lambda names: st.fixed_dictionaries({name: members[name] for name in names})
        )
    if kind == "array":
        return st.lists(fitting(schema["items"]), max_size=2)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    return st.integers() if kind == "integer" else st.text(max_size=5)


JUDGES = {
    "type": "object",
    "properties": {
        "walk": {"type": "string"},
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "steps": {"type": "array", "items": {"type": "integer"}},
                    "problem": {"type": "string", "maxLength": 600},
                },
                "required": ["steps", "problem"],
                "additionalProperties": False,
            },
        },
        "verdict": {"type": "string", "enum": ["pass", "fail", "unsure"]},
    },
    "required": ["walk", "findings", "verdict"],
    "additionalProperties": False,
}


def written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@given(SCHEMAS, VALUES)
def test_what_passes_is_valid_and_as_the_slow_way_arranges_it(schema: dict[str, Any], value: Any) -> None:
    form = JsonForm("f", json.dumps(schema))
    try:
        arranged = form.arranged(value)
    except UncertainError:
        return
    conformed, conversions = conform(value, form)
    assert written(arranged) == written(conformed)
    assert conversions == []
    assert form.violation(arranged) == ""


@given(fitting(JUDGES))
def test_answers_of_the_judges_kind_take_the_quick_way(value: Any) -> None:
    form = JsonForm("f", json.dumps(JUDGES))
    assert list(form.arranged(value)) == ["walk", "findings", "verdict"]
    assert form.violation(value) == ""


@given(SCHEMAS, VALUES, st.sampled_from([None, 1]), st.booleans())
def test_a_text_is_rewritten_as_its_value_is_arranged(
    schema: dict[str, Any], value: Any, indent: int | None, ascii_only: bool
) -> None:
    form, text = JsonForm("f", json.dumps(schema)), json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    try:
        rewritten = form.rewritten(text)
    except UncertainError:
        return
    assert rewritten == json.dumps(json.loads(rewritten), ensure_ascii=False, separators=(",", ":"))
    assert written(json.loads(rewritten)) == written(form.arranged(value))


@given(fitting(JUDGES))
def test_texts_of_the_judges_kind_take_the_quick_way(value: Any) -> None:
    form = JsonForm("f", json.dumps(JUDGES))
    assert json.loads(form.rewritten(json.dumps(value, ensure_ascii=False))) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "x", "a": "x"}',
        '{"a": "x", "a": "y"}',
        '{"a": "x", "\\u0061": "y"}',
        # As many quotes as in what is left of it, none of which are written as quotes.
        '{"a": "x", "a": "\\u0022\\u0022\\u0022\\u0022"}',
        '{"a": NaN}',
        '{"a": "x"} and more',
        '{"a": "\\ud83d"}',
        '{"a": "x"',
        '{"a": "x", "b": 1e999}',
        '{"a": "x", "b": 1' + "0" * 5000 + "}",
        "",
    ],
)
def test_a_text_that_needs_more_thought_is_not_rewritten(text: str) -> None:
    members = {"a": {"type": "string"}, "b": {"type": "number"}}
    schema = {"type": "object", "properties": members, "required": ["a"], "additionalProperties": False}
    form = JsonForm("f", json.dumps(schema))
    assert form.rewritten('{"b": 1, "a": "\\""}') == '{"a":"\\"","b":1}'
    with pytest.raises(UncertainError):
        form.rewritten(text)


@pytest.mark.parametrize(
    ("bounds_said", "fits", "does_not"),
    [
        ({"minimum": 0.5}, [1, 2], [0]),
        ({"maximum": 2.5}, [-1, 2], [3]),
        ({"minimum": 1, "maximum": 3}, [1, 3], [0, 4]),
        ({"minimum": 2**53}, [2**53, 10**30], [2**53 - 1]),
    ],
)
@pytest.mark.parametrize("kind", ["integer", "number"])
def test_numbers_keep_their_bounds(
    kind: str, bounds_said: dict[str, Any], fits: list[int], does_not: list[int]
) -> None:
    form = JsonForm("f", json.dumps({"type": "array", "items": {"type": kind, **bounds_said}}))
    assert form.rewritten(json.dumps(fits)) == json.dumps(fits, separators=(",", ":"))
    for number in does_not:
        with pytest.raises(UncertainError):
            form.rewritten(json.dumps([number]))


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {}, "required": ["a"], "additionalProperties": False},
        {"type": "array"},
        {"type": "string", "pattern": "a"},
        {"type": "string", "minimum": 3},
        {"type": "number", "enum": [1, 1.0]},
        {"anyOf": [{"type": "string"}]},
        {"$ref": "#"},
        {"type": "boolean", "const": True},
        {"type": "number", "minimum": 10**30},
        {"type": "integer", "maximum": float("inf")},
    ],
)
def test_a_schema_that_says_more_is_left_to_the_validator(schema: dict[str, Any]) -> None:
    assert compile_schema(schema) is None
