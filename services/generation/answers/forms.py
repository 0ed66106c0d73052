"""The form that an answer in JSON must have: a compiled JSON Schema (draft 2020-12), and its fast path.

The fast path for answers that fit as they are: parsed, validated and ordered in one pass. A JSON Schema of
the keywords below is compiled into a schema of ``pydantic_core``, which takes a small part of the time that a
general validator takes. It only ever says "it fits" or "ask the validator": never that something does not
fit, and it converts nothing. A schema with any other keyword is not compiled.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.exceptions import best_match
from pydantic_core import SchemaError as UncompiledError
from pydantic_core import SchemaValidator, core_schema, to_json
from pydantic_core.core_schema import CoreSchema
from referencing import Registry
from referencing.exceptions import Unresolvable

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
        return CompiledSchema(SchemaValidator(_core_schema(schema, _DEEPEST)))
    except (UncertainError, UncompiledError):
        return None


def _core_schema(schema: Any, depth: int) -> CoreSchema:
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
    if kind == "string" and said <= {"type", "minLength", "maxLength"}:
        fewest, most = schema.get("minLength"), schema.get("maxLength")
        return core_schema.str_schema(min_length=fewest, max_length=most, strict=True)
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
            name: core_schema.typed_dict_field(_core_schema(part, depth - 1), required=name in required)
            for name, part in members.items()
        },
        extra_behavior="forbid",
        strict=True,
    )


def _array(schema: Mapping[str, Any], depth: int) -> CoreSchema:
    item = _core_schema(schema.get("items"), depth - 1)
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


MAX_ERROR_LENGTH = 500


class InvalidSchemaError(ValueError):
    """The schema cannot be used; the message gives the reason."""


class JsonForm:
    """A named JSON Schema, ready to check answers.

    Two forms are equal if their names and schemas are equal, including the order of members: models write
    members in the order of the schema, so the order influences the answer.
    """

    __slots__ = (
        "_compiled_schema",
        "_validator",
        "accepted_text",
        "digest",
        "is_strict",
        "keywords",
        "name",
        "optional_members",
        "schema",
        "text",
    )

    schema: Mapping[str, Any]
    text: str
    """The schema as compact JSON, its members in the order given."""
    accepted_text: str
    """The accepted schema as JSON; empty where it is the schema."""
    digest: str
    """The SHA-256, in lower-case hexadecimal, of the name and the schema."""
    keywords: frozenset[str]
    """The keywords that the schema uses anywhere."""
    optional_members: frozenset[str]
    """The names of the members that the accepted schema requires nowhere, for example of reasons."""
    is_strict: bool
    """Whether providers can enforce the schema in decoding: all objects are closed, all members required."""

    def __init__(self, name: str, schema: str, accepted: str = "") -> None:
        """Compiles ``schema``, the JSON text of a JSON Schema.

        Args:
            name: The name.
            schema: The schema that providers enforce.
            accepted: A weaker schema that is enough for an answer. Empty: ``schema``.

        Raises:
            InvalidSchemaError: One is not JSON, not a JSON Schema, or refers to another document.
        """
        self.name = name
        self.accepted_text = accepted
        compiled = _compile(schema)
        self.schema, self.text, self.is_strict = compiled.schema, compiled.text, compiled.is_strict
        self.keywords = frozenset(_keywords(self.schema))
        self.digest = hashlib.sha256(f"{name}\n{self.text}".encode(errors="replace")).hexdigest()
        self._validator, self._compiled_schema = compiled.validator, compiled.compiled_schema
        self.optional_members = frozenset()
        if accepted:
            enough = _load(accepted)
            self._validator = _validator(enough)
            self.optional_members = frozenset(_members(enough, "properties") - _members(enough, "required"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonForm) and (self.name, self.text, self.accepted_text) == (
            other.name,
            other.text,
            other.accepted_text,
        )

    def __hash__(self) -> int:
        return hash((self.name, self.text))

    def __repr__(self) -> str:
        return f"JsonForm({self.name!r}, {self.text!r})"

    def text_without(self, keywords: frozenset[str]) -> str:
        """The schema as compact JSON, without constraints by these keywords."""
        return _text_without(self.text, keywords) if keywords & self.keywords else self.text

    def arranged(self, value: object) -> Any:
        """Returns a fitting value with its members in the schema's order.

        Raises:
            UncertainError: Only [violation] can decide whether the value fits.
        """
        if self._compiled_schema is None:
            raise UncertainError
        return self._compiled_schema.arranged(value)

    def rewritten(self, text: str) -> str:
        """Returns the JSON ``text`` in compact form and in the schema's order, where its value fits.

        Raises:
            UncertainError: The text needs extraction or full validation.
        """
        if self._compiled_schema is None:
            raise UncertainError
        return self._compiled_schema.rewritten(text)

    def violation(self, value: object) -> str:
        """Describes in a sentence where ``value`` does not fit the accepted schema. Empty: it fits."""
        try:
            if self._validator.is_valid(value):
                return ""
            error = best_match(self._validator.iter_errors(value))
        except RecursionError:
            return "the answer is nested too deeply"
        except Unresolvable as error:
            return f"the schema's references cannot be resolved: {error}"
        return _describe(error) if error is not None else ""

    def fitting_parts(self, value: object) -> object:
        """Returns an object without those members that are objects themselves and do not fit.

        A value that is no object, or would have no member of that kind left, is returned unchanged. Without
        an accepted schema, every value is.
        """
        parts = self._parts()
        if not self.accepted_text or not parts or not isinstance(value, dict):
            return value
        try:
            unfit = {str(error.path[0]) for error in self._validator.iter_errors(value) if error.path}
        except (RecursionError, Unresolvable):
            return value
        kept = {name: member for name, member in value.items() if name not in unfit & parts}
        return kept if parts & kept.keys() else value

    def violation_of_parts(self, value: object) -> str:
        """Like ``violation``, but members that are objects themselves may be missing."""
        parts = self._parts()
        try:
            for error in self._validator.iter_errors(value):
                is_missing_part = error.validator == "required" and not error.path and isinstance(value, dict)
                if not is_missing_part or not {*error.validator_value} - value.keys() <= parts:  # type: ignore[attr-defined]
                    return _describe(error)
        except (RecursionError, Unresolvable) as error:
            return f"the answer cannot be checked: {type(error).__name__}"
        return ""

    def _parts(self) -> set[str]:
        members = self.resolve(self.schema.get("properties"))
        return {name for name, part in members.items() if self.resolve(part).get("type") == "object"}

    def resolve(self, schema: Any) -> Mapping[str, Any]:
        """Follows the local references of a subschema. A boolean subschema becomes an empty mapping."""
        seen = 0
        while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str) and seen < 32:
            schema = _lookup(self.schema, schema["$ref"])
            seen += 1
        return schema if isinstance(schema, Mapping) else {}


json_form = lru_cache(maxsize=256)(JsonForm)
"""Compiles a form, cached: a run uses few forms thousands of times."""


class _Compiled(NamedTuple):
    schema: Mapping[str, Any]
    text: str
    is_strict: bool
    validator: Draft202012Validator
    compiled_schema: CompiledSchema | None


def _compile(text: str) -> _Compiled:
    schema = _load(text)
    canonical = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return _Compiled(schema, canonical, _is_strict(schema), _validator(schema), compile_schema(schema))


def _validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    # The registry is empty, so that a schema cannot make the service fetch a document.
    return Draft202012Validator(schema, registry=Registry())


def _load(text: str) -> Mapping[str, Any]:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaError(f"is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise InvalidSchemaError("must be a JSON object")
    try:
        Draft202012Validator.check_schema(schema)
        for part in _subschemas(schema):
            _check_reference(schema, part)
    except SchemaError as error:
        raise InvalidSchemaError(f"is no JSON Schema: {error.message[:MAX_ERROR_LENGTH]}") from None
    except RecursionError:
        raise InvalidSchemaError("is nested too deeply") from None
    return schema


def _is_strict(schema: Mapping[str, Any]) -> bool:
    return all(
        part.get("additionalProperties") is False
        and set(part.get("required", ())) == set(part.get("properties", {}))
        for part in _subschemas(schema)
        if part.get("type") == "object" or "properties" in part
    )


def _check_reference(schema: Mapping[str, Any], part: Mapping[str, Any]) -> None:
    reference = part.get("$ref")
    if isinstance(reference, str) and _lookup(schema, reference) is None:
        raise InvalidSchemaError(f"has the reference {reference!r}, which names nothing within it")


def _lookup(schema: Mapping[str, Any], reference: str) -> Any:
    """Resolves a JSON Pointer fragment (RFC 6901, section 6). None: it does not resolve in this document."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    part: Any = schema
    for token in unquote(reference).split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(part, list) and key.isdecimal() and int(key) < len(part):
            part = part[int(key)]
        elif isinstance(part, Mapping) and key in part:
            part = part[key]
        else:
            return None
    return part


def _members(schema: Mapping[str, Any], keyword: str) -> set[str]:
    return {name for part in _subschemas(schema) for name in part.get(keyword, ())}


def _subschemas(part: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(part, Mapping):
        yield part
        for value in part.values():
            yield from _subschemas(value)
    elif isinstance(part, list):
        for value in part:
            yield from _subschemas(value)


_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""The keywords whose members are subschemas by a name of any kind."""
_VALUES = frozenset({"enum", "const", "default", "examples"})
"""The keywords that hold values, not schemas."""


def _keywords(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for part in schema:
            yield from _keywords(part)
    elif isinstance(schema, dict):
        yield from schema
        for name, part in schema.items():
            if name in _NAMED and isinstance(part, dict):
                for named in part.values():
                    yield from _keywords(named)
            elif name not in _VALUES:
                yield from _keywords(part)


@lru_cache(maxsize=256)
def _text_without(text: str, keywords: frozenset[str]) -> str:
    return json.dumps(_without(json.loads(text), keywords), ensure_ascii=False, separators=(",", ":"))


def _without(schema: Any, keywords: frozenset[str]) -> Any:
    if isinstance(schema, list):
        return [_without(part, keywords) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: part
        if name in _VALUES
        else {named: _without(one, keywords) for named, one in part.items()}
        if name in _NAMED and isinstance(part, dict)
        else _without(part, keywords)
        for name, part in schema.items()
        if name not in keywords
    }


def _describe(error: ValidationError) -> str:
    where = error.json_path.removeprefix("$.").removeprefix("$")
    message = error.message
    if len(message) > MAX_ERROR_LENGTH:
        message = message[:MAX_ERROR_LENGTH] + "..."
    return f"{where}: {message}" if where else message
