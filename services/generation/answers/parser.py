"""Parses the text of an answer as JSON that fits a schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from services.generation.answers.coercion import conform
from services.generation.answers.compiled_schema import UncertainError
from services.generation.answers.extraction import Extracted, UnreadableError, extract
from services.generation.answers.forms import JsonForm


@dataclass(slots=True)
class ParsedAnswer:
    """An answer as read: canonical JSON, or why there is none."""

    json: str | None
    """Compact, members in the schema's order."""
    repairs: tuple[str, ...] = ()
    error: str = ""


def parse_answer(text: str, form: JsonForm) -> ParsedAnswer:
    """Reads the one JSON value in ``text`` that ``form`` asks for.

    Code fences and prose around the value are removed; trailing commas, quotes
    and the like are mended; members in another type that mean the same are converted. Each is named in
    ``repairs``. What is never done: closing what was left open, choosing between two values that disagree,
    dropping a member. Never raises.
    """
    try:
        return ParsedAnswer(form.rewritten(text))
    except UncertainError:
        pass
    try:
        return _read(text, form)
    except UnreadableError as error:
        return ParsedAnswer(None, error=str(error))
    except RecursionError:
        return ParsedAnswer(None, error="the JSON is nested too deeply")


def _read(text: str, form: JsonForm) -> ParsedAnswer:
    names = form.resolve(form.schema).get("properties") or {}
    lists = "array" in str(form.resolve(form.schema).get("type", ""))
    read = [_canonical(part, form) for part in extract(text, names=[*names], lists=lists)]
    if len(read) > 1:
        # An example or a note in braces is not an answer; an object with a member of the form may be one.
        read = [part for part in read if not names or names.keys() & _members(part.value)] or read
    if len({part.text for part in read}) > 1:
        raise UnreadableError("the answer has several JSON values, which disagree")
    violation = "" if read[0].fits else form.violation(read[0].value)
    if violation:
        return ParsedAnswer(None, read[0].repairs, violation)
    return ParsedAnswer(read[0].text, read[0].repairs)


@dataclass(frozen=True, slots=True)
class _Canonical:
    value: Any
    text: str
    repairs: tuple[str, ...]
    fits: bool
    """Whether it is certain already that the value fits the form."""


def _canonical(part: Extracted, form: JsonForm) -> _Canonical:
    conversions: list[str] = []
    try:
        value, fits = form.arranged(part.value), True
    except UncertainError:
        value, conversions = conform(part.value, form)
        fits = False
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        raise UnreadableError("a string has half of a surrogate pair, which is no character") from None
    except ValueError:
        raise UnreadableError("a number is too large") from None
    return _Canonical(value, text, (*part.repairs, *conversions), fits)


def _members(value: Any) -> set[str]:
    return set(value) if isinstance(value, dict) else set()
