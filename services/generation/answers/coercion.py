"""Converts a JSON value to the types, names and member order of its schema, where its meaning is clear."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dramaturg.judge.readings import as_integer, as_option
from services.generation.answers.extraction import UnreadableError
from services.generation.answers.forms import JsonForm

_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d{1,17})?([eE][+-]?\d{1,2})?")
_BOOLEANS = {"true": True, "false": False}
_WORD = re.compile(r"[^\W_]+")
_DECIDING = frozenset(
    [
        "answer",
        "choice",
        "conclusion",
        "correct",
        "corrected",
        "correction",
        "decision",
        "final",
        "grade",
        "outcome",
        "overall",
        "own",
        "rating",
        "real",
        "result",
        "revised",
        "score",
        "true",
        "turn",
        "updated",
        "verdict",
        "vote",
        "winner",
    ]
)
"""Words in the name of an additional member that may hold the answer itself."""


def conform(value: Any, form: JsonForm) -> tuple[Any, list[str]]:
    """Returns ``value`` in the schema's types and member order, and a list of the conversions.

    Values are converted only if the meaning stays the same: ``"true"`` to true, ``"3"`` and ``"[[3]]"`` to 3,
    ``3.0`` to 3 where the schema has an integer, ``"PASS."`` to one of the schema's options, ``7`` to ``"7"``
    where it has a string, ``"null"`` to null. Names of members are matched without regard to case and
    punctuation. Members that a closed object does not list are left out. A list of one object, or an object
    with one member, around the answer is removed. All other values stay unchanged and are left to validation.

    Raises:
        UnreadableError: An additional member disagrees with a member of the schema.
    """
    repairs: dict[str, None] = {}
    conformed = _conform(_unwrapped(value, form, repairs), form.schema, form, repairs)
    return conformed, list(repairs)


def _unwrapped(value: Any, form: JsonForm, repairs: dict[str, None]) -> Any:
    schema = form.resolve(form.schema)
    names = {_folded(name) for name in form.resolve(schema.get("properties"))}
    if "object" not in _types(schema) or not names:
        return value
    inner = value
    if isinstance(value, list) and len(value) == 1:
        inner = value[0]
    elif isinstance(value, dict) and len(value) == 1 and not names & {*map(_folded, value)}:
        (inner,) = value.values()
    if inner is value or not isinstance(inner, dict) or not names & {*map(_folded, inner)}:
        return value
    repairs["wrapper-removed"] = None
    return inner


def _conform(value: Any, schema: Any, form: JsonForm, repairs: dict[str, None]) -> Any:
    schema = form.resolve(schema)
    if isinstance(value, dict):
        return _object(value, schema, form, repairs)
    if isinstance(value, list):
        return [_conform(item, schema.get("items"), form, repairs) for item in value]
    converted, repair = _convert(value, schema)
    if repair:
        repairs[repair] = None
    return converted


def _object(
    value: Mapping[str, Any], schema: Mapping[str, Any], form: JsonForm, repairs: dict[str, None]
) -> dict[str, Any]:
    members = form.resolve(schema.get("properties"))
    renamed = _renamed(value, members, repairs)
    listed = {name: renamed[name] for name in members if name in renamed}
    absent = {
        name for name, member in listed.items() if member is None and _excludes_null(members[name], form)
    }
    if absent:
        repairs["null-removed"] = None
    conformed = {
        name: _part(name, member, members[name], form, repairs)
        for name, member in listed.items()
        if name not in absent
    }
    extra = {name: member for name, member in renamed.items() if name not in members}
    if not extra:
        return conformed
    if not members or schema.get("additionalProperties") is not False:
        return conformed | {name: _conform(member, None, form, repairs) for name, member in extra.items()}
    for name, member in extra.items():
        _require_agreement(name, member, conformed, members, form)
    repairs["member-removed"] = None
    return conformed


def _part(name: str, value: Any, schema: Any, form: JsonForm, repairs: dict[str, None]) -> Any:
    """Converts a member, for example the section of a criterion.

    A bare value in place of a section is its deciding member, one object in place of a list its only item,
    and a list of texts in place of a reason its paragraphs. A section that contradicts itself becomes null,
    which violates the schema, so that the other sections keep their values.
    """
    schema = form.resolve(schema)
    types = _types(schema)
    if isinstance(value, dict) and types == ("array",):
        repairs["list-completed"] = None
        return [_conform(value, schema.get("items"), form, repairs)]
    is_texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
    is_reason = types == ("string",) and "enum" not in schema and name in form.optional_members
    if is_texts and is_reason:
        repairs["list-joined"] = None
        return "\n".join(value)
    if isinstance(value, str | int | float) and "object" in types:
        members = form.resolve(schema.get("properties"))
        parts = {name: form.resolve(part) for name, part in members.items()}
        read = {name: _convert(value, part)[0] for name, part in parts.items() if is_deciding(part)}
        fitting = {name: found for name, found in read.items() if fits_deciding(found, parts[name])}
        if len(fitting) == 1:
            repairs["section-completed"] = None
            return fitting
    try:
        return _conform(value, schema, form, repairs)
    except UnreadableError:
        if isinstance(value, dict):
            return None
        raise


def _excludes_null(schema: Any, form: JsonForm) -> bool:
    types = _types(form.resolve(schema))
    return bool(types) and "null" not in types


def _renamed(
    value: Mapping[str, Any], members: Mapping[str, Any], repairs: dict[str, None]
) -> Mapping[str, Any]:
    """Gives members the schema's spelling of their names, where exactly one member has that name."""
    unknown = [name for name in value if name not in members]
    if not unknown:
        return value
    spellings = {_folded(name): name for name in members if name not in value}
    meant = {name: spellings.get(_folded(name)) for name in unknown}
    unique = [name for name in meant.values() if name is not None]
    names = {name: to for name, to in meant.items() if to is not None and unique.count(to) == 1}
    if not names:
        return value
    repairs["member-renamed"] = None
    return {names.get(name, name): member for name, member in value.items()}


def _folded(name: str) -> str:
    return "".join(_WORD.findall(name.casefold()))


def _require_agreement(
    name: str, member: Any, conformed: Mapping[str, Any], members: Mapping[str, Any], form: JsonForm
) -> None:
    """Refuses an additional member that may hold the answer in place of a member of the schema.

    Raises:
        UnreadableError: It may, and its value differs.
    """
    words = {*_WORD.findall(name.casefold().replace("_", " "))}
    for own, schema in members.items():
        part = form.resolve(schema)
        if not is_deciding(part):
            continue
        converted, _ = _convert(member, part)
        own_words = {*_WORD.findall(own.casefold().replace("_", " "))}
        related = bool(words & (own_words | _DECIDING))
        if related and fits_deciding(converted, part) and converted != conformed.get(own):
            raise UnreadableError(f"the members {own!r} and {name!r} disagree")


def is_deciding(schema: Mapping[str, Any]) -> bool:
    """Whether a schema is one of a verdict, a rating or the like: options or a bounded whole number."""
    options = schema.get("enum")
    if isinstance(options, list):
        return all(isinstance(option, str) for option in options)
    return "integer" in _types(schema) and {"minimum", "maximum"} <= schema.keys()


def fits_deciding(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is one of the options, or a whole number within the bounds."""
    options = schema.get("enum")
    if isinstance(options, list):
        return value in options
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return is_integer and schema["minimum"] <= value <= schema["maximum"]


def _types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    types = schema.get("type", ())
    return (types,) if isinstance(types, str) else tuple(types)


def _convert(value: Any, schema: Mapping[str, Any]) -> tuple[Any, str]:
    types = _types(schema)
    options = schema.get("enum")
    if isinstance(options, list) and options and all(isinstance(option, str) for option in options):
        return _option(value, options)
    if isinstance(value, float) and "integer" in types and "number" not in types and value.is_integer():
        return int(value), "number-to-integer"
    if isinstance(value, int) and not isinstance(value, bool) and types == ("string",):
        return str(value), "number-to-string"
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
    if "integer" in types:
        number = as_integer(text, schema.get("minimum"), schema.get("maximum"))
        if number is not None:
            return number, "string-to-number"
    return value, ""


def _option(value: Any, options: list[str]) -> tuple[Any, str]:
    if value in options:
        return value, ""
    if isinstance(value, int) and not isinstance(value, bool) and str(value) in options:
        return str(value), "number-to-string"
    option = as_option(value, options) if isinstance(value, str) else None
    return (value, "") if option is None else (option, "option-recognised")
