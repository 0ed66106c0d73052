"""Extracts JSON values from the text of a model."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from dramaturg.judge.reasoning import end_of_open_reasoning
from services.generation.answers.tolerant_json import BrokenJsonError, Members, read_tolerantly

MAX_VALUES = 32
"""The maximum number of bracketed parts of an answer."""

_BRACKETS = re.compile(r"[{}\[\]]")
_BRACKETS_OUTSIDE_STRINGS = re.compile(r'"(?:[^"\\]++|\\.)*+"|\\.|[{}\[\]]', re.DOTALL)
_MEMBER = re.compile(r'"([\w.-]{1,100}+)"\s{0,20}:')


class UnreadableError(ValueError):
    """The text has no readable JSON value; the message gives the reason in words for the model."""


class _ContradictionError(UnreadableError):
    """An object has a member twice, with different values."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """A JSON value found in a text, and the repairs that reading it needed."""

    value: Any
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Extraction:
    """The JSON values of a text and the text after the last one."""

    values: Sequence[Extracted]
    after: str = ""


class NoJsonError(UnreadableError):
    """The text has no JSON."""


def extract(text: str, *, names: Collection[str] = (), lists: bool = False) -> Extraction:
    """Returns the JSON values in ``text``: one where the whole text is JSON, else all that it contains.

    Args:
        text: The text of a model.
        names: The names of expected members. Unreadable text in braces that has none of them counts as
          prose.
        lists: Whether lists within prose are extracted too.

    Raises:
        NoJsonError: There is no value.
        UnreadableError: A value cannot be read.
    """
    stripped = text.strip().removeprefix("\ufeff").strip()
    try:
        value = _parse(stripped)
    except _ContradictionError:
        raise
    except ValueError:
        return _search(stripped, names, lists)
    return Extraction([value])


def _search(body: str, names: Collection[str], lists: bool) -> Extraction:
    """Reads every outermost value of ``body``. Removing the text around it counts as a repair."""
    opening = re.compile(r"[{\[]" if lists else r"\{")
    around = "code-fence-removed" if "```" in body else "prose-removed"
    values: list[Extracted] = []
    position = count = after = 0
    prose: list[str] = []
    while match := opening.search(body, position):
        resumed = end_of_open_reasoning(body, position, match.start())
        if resumed is not None:
            prose.append(body[position : match.start()])
            position = resumed
            continue
        count += 1
        if count > MAX_VALUES:
            raise UnreadableError(f"the answer has more than {MAX_VALUES} parts in brackets")
        prose.append(body[position : match.start()])
        try:
            part, position = _read(body, match.start())
        except UnreadableError:
            segment = body[match.start() : _segment_end(body, match.start())]
            if names and not any(name in segment for name in names):
                position = match.start() + len(segment)
                continue
            raise
        after = position
        whole = match.start() == 0 and position == len(body)
        values.append(part if whole else Extracted(part.value, (around, *part.repairs)))
    if not values:
        raise NoJsonError("there is no JSON in the answer")
    prose.append(body[position:])
    for outside in prose:
        if any(found[1] in names for found in _MEMBER.finditer(outside)):
            raise UnreadableError("a part of the JSON is outside of its brackets")
    return Extraction(values, body[after:])


def _segment_end(body: str, start: int) -> int:
    """Returns the position after the bracket that closes the one at ``start``, else the end.

    Where quotes are unbalanced, every bracket counts, as strings cannot be recognised.
    """
    for brackets in (_BRACKETS_OUTSIDE_STRINGS, _BRACKETS):
        depth = 0
        for match in brackets.finditer(body, start):
            if match[0] in "{[":
                depth += 1
            elif match[0] in "}]":
                depth -= 1
                if depth == 0:
                    return match.end()
    return len(body)


def _read(body: str, start: int) -> tuple[Extracted, int]:
    """Reads the value that begins at ``start``, as strict JSON or with repairs."""
    try:
        return _parse_from(body, start)
    except UnreadableError:
        raise
    except ValueError:
        pass
    try:
        value, end, repairs = read_tolerantly(body, start)
    except BrokenJsonError as error:
        raise UnreadableError(str(error)) from None
    plain = _plain(value)
    order = ("comma-repaired", "json-repaired", "duplicate-removed")
    kept = {"json-repaired"} if "json-repaired" in repairs else repairs
    return Extracted(plain, tuple(name for name in order if name in kept)), end


def _plain(value: Any) -> Any:
    """Converts ``Members`` to dictionaries.

    Raises:
        UnreadableError: A member is repeated with different values.
    """
    if isinstance(value, Members):
        return _unique([(name, _plain(member)) for name, member in value])
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        for name, value in pairs:
            if json.dumps(result[name], sort_keys=True) != json.dumps(value, sort_keys=True):
                raise _ContradictionError(f"the member {name!r} is repeated with different values")
    return result


def _parse(text: str) -> Extracted:
    """Reads strict JSON (RFC 8259).

    Raises:
        ValueError: It is not JSON.
        UnreadableError: It is JSON that is nested too deeply or contradicts itself.
    """
    part, end = _parse_from(text, 0)
    if end != len(text):
        raise ValueError("there is text after the JSON")
    return part


def _parse_from(text: str, start: int) -> tuple[Extracted, int]:
    repairs: tuple[str, ...] = ()

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repairs
        result = _unique(pairs)
        if len(result) != len(pairs):
            repairs = ("duplicate-removed",)
        return result

    decoder = json.JSONDecoder(object_pairs_hook=members, parse_constant=_refuse_constant)
    try:
        value, end = decoder.raw_decode(text, start)
    except RecursionError:
        raise UnreadableError("the JSON is nested too deeply") from None
    return Extracted(value, repairs), end


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
