"""Converts a JSON value without loss to the types and the member order of its schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from services.generation.answers.forms import JsonForm

_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d{1,17})?([eE][+-]?\d{1,2})?")
_BOOLEANS = {"true": True, "false": False}


def conform(value: Any, form: JsonForm) -> tuple[Any, list[str]]:
    """Returns ``value`` with its members in the schema's order and types, and a list of the conversions.

    Values are converted only if the meaning stays the same: ``"true"`` to true, ``"3"`` to 3, ``3.0`` to 3
    where the schema has an integer, ``"null"`` to null. All other values stay unchanged and are left to
    validation. Members that the schema does not list come last, in the order given.
    """
    repairs: dict[str, None] = {}
    conformed = _conform(value, form.schema, form, repairs)
    return conformed, list(repairs)


def _conform(value: Any, schema: Any, form: JsonForm, repairs: dict[str, None]) -> Any:
    schema = form.resolve(schema)
    if isinstance(value, dict):
        members = form.resolve(schema.get("properties"))
        listed = {name: value[name] for name in members if name in value}
        return {
            name: _conform(member, members.get(name), form, repairs)
            for name, member in (listed | value).items()
        }
    if isinstance(value, list):
        return [_conform(item, schema.get("items"), form, repairs) for item in value]
    converted, repair = _convert(value, _types(schema))
    if repair:
        repairs[repair] = None
    return converted


def _types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    types = schema.get("type", ())
    return (types,) if isinstance(types, str) else tuple(types)


def _convert(value: Any, types: tuple[str, ...]) -> tuple[Any, str]:
    if isinstance(value, float) and "integer" in types and "number" not in types and value.is_integer():
        return int(value), "number-to-integer"
    if not isinstance(value, str) or not types or "string" in types:
        return value, ""
    text = value.strip()
    if "boolean" in types and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()], "string-to-boolean"
    if {"integer", "number"} & {*types} and _INTEGER.fullmatch(text):
        return int(text), "string-to-number"
    if "number" in types and _NUMBER.fullmatch(text):
        return float(text), "string-to-number"
    if "null" in types and text.lower() == "null":
        return None, "string-to-null"
    return value, ""
