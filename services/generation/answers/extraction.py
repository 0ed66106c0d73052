"""Extracts JSON values from the text of a model."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import json_repair

MAX_VALUES = 32
"""The maximum number of bracketed parts of an answer."""
MAX_REPAIRED_LENGTH = 20_000
"""The maximum length, in characters, of a text that is repaired: repair is slow and blocks the event loop."""

_BRACKETS = re.compile(r"[{}\[\]]")
_BRACKETS_OUTSIDE_STRINGS = re.compile(r'"(?:[^"\\]++|\\.)*+"|\\.|[{}\[\]]', re.DOTALL)
_MEMBER = re.compile(r"""(["']?)([\w$.-]+)\1\s*:""")
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
_QUOTE = re.compile(r'(?<!\\)(?:\\\\)*"')
_CLOSING = {"{": "}", "[": "]"}


class UnreadableError(ValueError):
    """The text has no readable JSON value; the message gives the reason in words for the model."""


class _ContradictionError(UnreadableError):
    """An object has a member twice, with different values."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """A JSON value found in a text, and the repairs that reading it needed."""

    value: Any
    repairs: tuple[str, ...] = ()


def extract(text: str, *, names: Collection[str] = (), lists: bool = False) -> list[Extracted]:
    """Returns the JSON values in ``text``: one where the whole text is JSON, else all that it contains.

    Args:
        text: The text of a model.
        names: The names of expected members. Unreadable text in braces that has none of them counts as
          prose.
        lists: Whether lists within prose are extracted too.

    Raises:
        UnreadableError: There is no value, or one cannot be read.
    """
    stripped = text.strip().removeprefix("\ufeff").strip()
    try:
        value = _parse(stripped)
    except _ContradictionError:
        raise
    except ValueError:
        found = list(_search(stripped, names, lists))
        if not found:
            raise UnreadableError("there is no JSON in the answer") from None
        return found
    return [value]


def _search(body: str, names: Collection[str], lists: bool) -> Iterator[Extracted]:
    """Reads every outermost value of ``body``. Removing the text around it counts as a repair."""
    opening = re.compile(r"[{\[]" if lists else r"\{")
    around = "code-fence-removed" if "```" in body else "prose-removed"
    position = values = 0
    while match := opening.search(body, position):
        segment = _segment(body, match.start())
        position = match.start() + len(segment)
        values += 1
        if values > MAX_VALUES:
            raise UnreadableError(f"the answer has more than {MAX_VALUES} parts in brackets")
        try:
            part = _read(segment)
        except UnreadableError:
            if names and not any(name in segment for name in names):
                continue
            raise
        yield Extracted(part.value, part.repairs if segment == body else (around, *part.repairs))


def _segment(body: str, start: int) -> str:
    """Returns the text from the bracket at ``start`` to its closing bracket, else to the end.

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
                    return body[start : match.end()]
    return body[start:]


def _read(segment: str) -> Extracted:
    try:
        return _parse(segment)
    except UnreadableError:
        raise
    except ValueError as error:
        reason = str(error)
    if segment[-1] != _CLOSING[segment[0]] or any(
        segment.count(opening) != segment.count(closing) for opening, closing in _CLOSING.items()
    ):
        # Adding missing brackets would make up the end of the answer.
        raise UnreadableError(f"the JSON is cut off or its brackets do not match ({reason})")
    if len(segment) > MAX_REPAIRED_LENGTH:
        raise UnreadableError(f"the JSON cannot be read ({reason})")
    return _mend(segment, reason)


def _mend(segment: str, reason: str) -> Extracted:
    """Repairs commas, quotes, comments and Python literals, provided that no member is lost."""
    try:
        part = _parse(_TRAILING_COMMA.sub(r"\1", segment))
    except UnreadableError:
        raise
    except ValueError:
        pass
    else:
        return Extracted(part.value, (*part.repairs, "comma-repaired"))
    if len(_QUOTE.findall(segment)) % 2:
        # The closing bracket may be a part of a truncated string.
        raise UnreadableError(f"a string in the JSON is left open ({reason})")
    try:
        value = json_repair.loads(segment, skip_json_loads=True, strict=True)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict | list):
        raise UnreadableError(f"the JSON cannot be read ({reason})")
    written = Counter(match[2] for match in _MEMBER.finditer(segment))
    kept = Counter(_names(value))
    if any(written[name] > count for name, count in kept.items()):
        raise UnreadableError(f"the JSON cannot be read without losing a part of it ({reason})")
    return Extracted(value, ("json-repaired",))


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield str(name)
            yield from _names(member)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)


def _parse(text: str) -> Extracted:
    """Reads strict JSON (RFC 8259).

    Raises:
        ValueError: It is not JSON.
        UnreadableError: It is JSON that is nested too deeply or contradicts itself.
    """
    repairs: tuple[str, ...] = ()

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repairs
        result = dict(pairs)
        if len(result) != len(pairs):
            for name, value in pairs:
                if json.dumps(result[name], sort_keys=True) != json.dumps(value, sort_keys=True):
                    raise _ContradictionError(f"the member {name!r} stands twice, with different values")
            repairs = ("duplicate-removed",)
        return result

    try:
        value = json.loads(text, object_pairs_hook=members, parse_constant=_refuse_constant)
    except RecursionError:
        raise UnreadableError("the JSON is nested too deeply") from None
    return Extracted(value, repairs)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
