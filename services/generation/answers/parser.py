"""Parses the text of an answer as JSON that fits a schema. The rules are in docs/answers.md."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from services.generation.answers.coercion import conform
from services.generation.answers.compiled_schema import UncertainError
from services.generation.answers.extraction import Extracted, NoJsonError, UnreadableError, extract
from services.generation.answers.forms import JsonForm
from services.generation.answers.prose import prose_value, require_no_other_value


@dataclass(slots=True)
class ParsedAnswer:
    """An answer as read: canonical JSON, or why there is none."""

    json: str | None
    """Compact, members in the schema's order."""
    repairs: tuple[str, ...] = ()
    error: str = ""


def parse_answer(text: str, form: JsonForm, *, is_last: bool = False) -> ParsedAnswer:
    """Reads the one value in ``text`` that ``form`` asks for.

    Code fences and prose around JSON are removed; errors of notation are repaired; values in another form
    that mean the same are converted. A text without JSON is read where the form has one deciding member, for
    example a rating, and the text states it clearly. ``repairs`` names each of these. Never does it close
    an open end, choose between two values that disagree, or drop a part of the JSON text. Never raises.

    Args:
        text: The text of a model, without its reasoning.
        form: The form.
        is_last: Whether the answer is not requested again, so that a part of it is better than none.
    """
    try:
        return ParsedAnswer(form.rewritten(text))
    except UncertainError:
        pass
    try:
        return _read(text, form, is_last=is_last)
    except UnreadableError as error:
        return ParsedAnswer(None, error=str(error))
    except RecursionError:
        return ParsedAnswer(None, error="the JSON is nested too deeply")


def _read(text: str, form: JsonForm, *, is_last: bool) -> ParsedAnswer:
    names = form.resolve(form.schema).get("properties") or {}
    lists = "array" in str(form.resolve(form.schema).get("type", ""))
    try:
        extraction = extract(text, names=[*names], lists=lists)
    except NoJsonError as error:
        return _read_prose(text, form, str(error))
    if names and not lists and not any(map(_has_object, extraction.values)):
        return _read_prose(text, form, "the answer is no JSON object")
    read = [_canonical(part, form) for part in extraction.values]
    if len(read) > 1:
        # An example or a note in braces is not an answer; an object with a member of the form may be one.
        read = [part for part in read if not names or names.keys() & _members(part.value)] or read
    if len({part.text for part in read}) > 1:
        raise UnreadableError("the answer has several JSON values, which disagree")
    require_no_other_value(extraction.after, read[0].value, form)
    return _checked(read[0], form, is_last=is_last)


def _checked(read: _Canonical, form: JsonForm, *, is_last: bool) -> ParsedAnswer:
    violation = "" if read.fits else form.violation(read.value)
    if not violation:
        return ParsedAnswer(read.text, read.repairs)
    partial = form.fitting_parts(read.value) if is_last and form.accepted_text else read.value
    if is_last and form.accepted_text and not form.violation_of_parts(partial):
        return ParsedAnswer(_compact(partial), (*read.repairs, "part-removed"))
    return ParsedAnswer(None, read.repairs, violation)


def _read_prose(text: str, form: JsonForm, problem: str) -> ParsedAnswer:
    value = prose_value(text, form)
    if value is None:
        raise UnreadableError(problem)
    return _checked(_Canonical(value, _compact(value), ("prose-read",), False), form, is_last=False)


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
    return _Canonical(value, _compact(value), (*part.repairs, *conversions), fits)


def _compact(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        raise UnreadableError("a string has half of a surrogate pair, which is no character") from None
    except ValueError:
        raise UnreadableError("a number is too large") from None
    return text


def _has_object(part: Extracted) -> bool:
    value = part.value
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(one, dict) for one in value)
    )


def _members(value: Any) -> set[str]:
    return set(value) if isinstance(value, dict) else set()
