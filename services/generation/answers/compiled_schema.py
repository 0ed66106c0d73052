"""The fast path for answers that fit as they are: parsed, validated and ordered in one pass.

A JSON Schema of the keywords below is compiled into a schema of ``pydantic_core``, which takes a small part
of the time that a general validator takes. It only ever says "it fits" or "ask the validator": never that
something does not fit, and it converts nothing. A schema with any other keyword is not compiled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema, to_json
from pydantic_core.core_schema import CoreSchema

_ANNOTATIONS = frozenset({"title", "description", "$comment", "$schema", "default", "examples", "deprecated"})
_DEEPEST = 32
_EXACT = 2**53
"""Up to this, an integer and the floating-point number next to it are the same."""


class UncertainError(Exception):
    """The value does not fit as it is, or it takes more to tell."""


class CompiledSchema:
    """What fits a schema as it is, its members in the schema's order."""

    __slots__ = ("_validator",)

    def __init__(self, validator: SchemaValidator) -> None:
        self._validator = validator

    def arranged(self, value: object) -> Any:
        """The value, in order. Raises [UncertainError] where it does not fit."""
        try:
            return self._validator.validate_python(value)
        except ValueError:
            raise UncertainError from None

    def rewritten(self, text: str) -> str:
        """Compact JSON of the value that ``text`` is JSON of, in order.

        Raises:
            UncertainError: It does not fit, it is not JSON, or it may repeat a member.
        """
        try:
            canonical = to_json(self._validator.validate_json(text)).decode()
        except ValueError:
            raise UncertainError from None
        # Of a repeated member the first is lost in reading, and with it the quotes around its name.
        # Quotes within strings are as many as before, unless they were not written as quotes.
        if text.count('"') != canonical.count('"') or r"\u0022" in text:
            raise UncertainError
        return canonical


def compile_schema(schema: Mapping[str, Any]) -> CompiledSchema | None:
    """Compiles a valid schema of draft 2020-12. None: it says more than is known here."""
    try:
        return CompiledSchema(SchemaValidator(_compile(schema, _DEEPEST)))
    except (UncertainError, SchemaError):
        return None


def _compile(schema: Any, depth: int) -> CoreSchema:
    if not isinstance(schema, dict) or not depth:
        raise UncertainError
    said = schema.keys() - _ANNOTATIONS
    kind = str(schema.get("type"))
    if kind == "object" and said <= {"type", "properties", "required", "additionalProperties"}:
        return _object(schema, depth)
    if kind == "array" and said <= {"type", "items", "minItems", "maxItems"}:
        return _array(schema, depth)
    if kind == "string" and said <= {"type", "enum"}:
        return _string(schema)
    if kind in {"integer", "number"} and said <= {"type", "minimum", "maximum"}:
        return _number(schema, whole=kind == "integer")
    if kind == "boolean" and said == {"type"}:
        return core_schema.bool_schema(strict=True)
    if kind == "null" and said == {"type"}:
        return core_schema.none_schema()
    raise UncertainError


def _object(schema: Mapping[str, Any], depth: int) -> CoreSchema:
    members, required = schema.get("properties", {}), frozenset(schema.get("required", ()))
    if schema.get("additionalProperties") is not False or not required <= members.keys():
        raise UncertainError
    return core_schema.typed_dict_schema(
        {
            name: core_schema.typed_dict_field(_compile(part, depth - 1), required=name in required)
            for name, part in members.items()
        },
        extra_behavior="forbid",
        strict=True,
    )


def _array(schema: Mapping[str, Any], depth: int) -> CoreSchema:
    item = _compile(schema.get("items"), depth - 1)
    fewest, most = schema.get("minItems"), schema.get("maxItems")
    return core_schema.list_schema(item, min_length=fewest, max_length=most, strict=True)


def _string(schema: Mapping[str, Any]) -> CoreSchema:
    choices = schema.get("enum")
    if choices is None:
        return core_schema.str_schema(strict=True)
    if not all(type(choice) is str for choice in choices):
        raise UncertainError  # what equals what in JSON is not what equals what in Python
    return core_schema.literal_schema(choices)


def _number(schema: Mapping[str, Any], *, whole: bool) -> CoreSchema:
    least, most = schema.get("minimum"), schema.get("maximum")
    if not all(bound is None or abs(bound) <= _EXACT for bound in (least, most)):
        raise UncertainError
    integer = core_schema.int_schema(
        ge=None if least is None else math.ceil(least),
        le=None if most is None else math.floor(most),
        strict=True,
    )
    if whole:
        return integer
    decimal = core_schema.float_schema(ge=least, le=most, allow_inf_nan=False, strict=True)
    # From left to right: an integer stays one.
    return core_schema.union_schema([integer, decimal], mode="left_to_right")
