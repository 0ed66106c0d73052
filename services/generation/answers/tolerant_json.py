"""Reads JSON with the errors that models make, without dropping or adding anything.

Beyond JSON (RFC 8259) it reads: a trailing comma, a missing comma before a member, strings in single or
typographic quotation marks, line breaks and invalid escapes in strings, quotation marks within a member's
string, names without quotation marks, one bare word as a string, and Python's ``True``, ``False``, ``None``.

Every character of the text belongs to the value or to its punctuation; else the text is refused. In
particular ``7 or 8``, ``7, 8``, ``7 - 1``, ``1 0``, comments and open brackets are refused. The time is
linear in the text.
"""

from __future__ import annotations

import re
from typing import Any

MAX_DEPTH = 64
"""The maximum nesting of objects and lists."""

_CLOSING_MARKS = {'"': '"', "'": "'", "\u201c": "\u201d", "\u201e": "\u201c", "\u2018": "\u2019"}
_PLAIN = {mark: re.compile(rf"[^{mark}\\]*+") for mark in {*_CLOSING_MARKS.values()}}
_SPACE = re.compile(r"[ \t\r\n\u00a0\u3000\u200b\ufeff]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300}+)(?:\.\d{1,300}+)?(?:[eE][+-]?\d{1,3}+)?(?![\w.+-])", re.ASCII)
_WORD = re.compile(r"[^\W\d][\w$-]{0,63}+(?![\w$.-])")
_LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CODE_UNIT = re.compile(r"[0-9a-fA-F]{4}")
_NAME_LENGTH = 100


class BrokenJsonError(ValueError):
    """The text is not JSON, not even with the errors that are read here."""


def read_tolerantly(text: str, start: int = 0) -> tuple[Any, int, set[str]]:
    """Reads the object or list that begins at ``start``.

    Returns:
        The value, where each object is a ``Members``; the position after it; and the repairs.

    Raises:
        BrokenJsonError: The value cannot be read in whole.
    """
    reader = _Reader(text, start)
    value = reader.value(0)
    return value, reader.position, reader.repairs


class Members(list[tuple[str, Any]]):
    """The members of an object, in order, repeated ones included."""


class _Reader:
    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self.position = start
        self.repairs: set[str] = set()

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise BrokenJsonError("the JSON is nested too deeply")
        character = self._peek()
        if character == "{":
            return self._object(depth)
        if character == "[":
            return self._list(depth)
        if character in _CLOSING_MARKS:
            return self._list_string()
        return self._scalar()

    def _object(self, depth: int) -> Members:
        members = Members()
        self.position += 1
        name_mark: str | None = None
        comma = False
        while True:
            if self._closes("}", comma=comma):
                return members
            mark = self._peek()
            if name_mark is None:
                name_mark = mark if mark in _CLOSING_MARKS else ""
            name = self._name(name_mark)
            self._expect(":")
            if self._peek() in _CLOSING_MARKS:
                value: Any = self._member_string(name_mark)
            else:
                value = self.value(depth + 1)
            members.append((name, value))
            comma = self._peek() == ","
            if comma:
                self.position += 1
            elif self._peek() != "}":
                # The next member follows without a comma.
                if self._name_at(self.position, name_mark) is None:
                    raise self._unexpected()
                self.repairs.add("json-repaired")

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self.position += 1
        comma = False
        while True:
            if self._closes("]", comma=comma):
                return items
            items.append(self.value(depth + 1))
            comma = self._peek() == ","
            if comma:
                self.position += 1
            elif self._peek() != "]":
                raise self._unexpected()

    def _closes(self, bracket: str, *, comma: bool) -> bool:
        """Whether the object or list ends here; a comma before its bracket is a repair."""
        if self._peek() != bracket:
            return False
        if comma:
            self.repairs.add("comma-repaired")
        self.position += 1
        return True

    def _name(self, mark: str) -> str:
        found = self._name_at(self.position, mark)
        if found is None:
            raise self._unexpected()
        name, self.position = found
        if mark != '"':
            self.repairs.add("json-repaired")
        return name

    def _name_at(self, position: int, mark: str) -> tuple[str, int] | None:
        """Returns the name of a member at a position and the position of its colon."""
        if mark:
            if not self._text.startswith(mark, position):
                return None
            end = self._text.find(_CLOSING_MARKS[mark], position + 1, position + _NAME_LENGTH)
            if end < 0:
                return None
            name, end = self._text[position + 1 : end], end + 1
        else:
            word = _WORD.match(self._text, position)
            if word is None:
                return None
            name, end = word[0], word.end()
        end = self._skip(end)
        if not self._text.startswith(":", end) or "\\" in name:
            return None
        return name, end

    def _member_string(self, name_mark: str) -> str:
        """Reads the string of a member, which may contain quotation marks.

        A quotation mark ends the string only if the object's end or another member follows.
        """
        mark = _CLOSING_MARKS[self._text[self.position]]
        return self._string(mark, lambda end: self._ends_member(end, name_mark))

    def _list_string(self) -> str:
        return self._string(_CLOSING_MARKS[self._text[self.position]], lambda _: True)

    def _ends_member(self, end: int, name_mark: str) -> bool:
        following = self._skip(end)
        if self._text.startswith("}", following):
            return True
        if self._text.startswith(",", following):
            following = self._skip(following + 1)
            if self._text.startswith("}", following):
                return True
        elif following == end or not name_mark:
            return False
        return self._name_at(following, name_mark) is not None

    def _string(self, mark: str, ends: Any) -> str:
        if self._text[self.position] != '"':
            self.repairs.add("json-repaired")
        parts: list[str] = []
        position = self.position + 1
        while True:
            plain = _PLAIN[mark].match(self._text, position)
            assert plain is not None
            parts.append(plain[0])
            position = plain.end()
            if position >= len(self._text):
                raise BrokenJsonError("the JSON is cut off: a string is left open")
            if self._text[position] == "\\":
                part, position = self._escape(position)
                parts.append(part)
            elif ends(position + 1):
                break
            else:
                self.repairs.add("json-repaired")
                parts.append(mark)
                position += 1
        self.position = position + 1
        text = "".join(parts)
        if any(character < " " for character in text):
            self.repairs.add("json-repaired")
        return text

    def _escape(self, position: int) -> tuple[str, int]:
        """Returns the character of an escape and the position after it. Invalid escapes stay as written."""
        escaped = self._text[position + 1 : position + 2]
        if escaped == "u":
            unit = _CODE_UNIT.match(self._text, position + 2)
            if unit is not None:
                return self._code_point(int(unit[0], 16), unit.end())
        if escaped in _ESCAPES:
            return _ESCAPES[escaped], position + 2
        if escaped in '"\\/' and escaped:
            return escaped, position + 2
        self.repairs.add("json-repaired")
        if escaped == "'":
            return escaped, position + 2
        return "\\" + escaped, position + 1 + len(escaped)

    def _code_point(self, unit: int, position: int) -> tuple[str, int]:
        if 0xD800 <= unit < 0xDC00 and self._text.startswith("\\u", position):
            low = _CODE_UNIT.match(self._text, position + 2)
            if low is not None and 0xDC00 <= int(low[0], 16) < 0xE000:
                return chr(0x10000 + (unit - 0xD800) * 0x400 + int(low[0], 16) - 0xDC00), low.end()
        return chr(unit), position

    def _scalar(self) -> Any:
        number = _NUMBER.match(self._text, self.position)
        if number is not None:
            self.position = number.end()
            return float(number[0]) if any(sign in number[0] for sign in ".eE") else int(number[0])
        word = _WORD.match(self._text, self.position)
        if word is None:
            raise self._unexpected()
        self.position = word.end()
        if word[0] not in {"true", "false", "null"}:
            self.repairs.add("json-repaired")
        if word[0] in {"NaN", "Infinity"}:
            raise BrokenJsonError(f"{word[0]} is no JSON number")
        return _LITERALS.get(word[0], word[0])

    def _expect(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._unexpected()
        self.position += 1

    def _peek(self) -> str:
        self.position = self._skip(self.position)
        return self._text[self.position : self.position + 1]

    def _skip(self, position: int) -> int:
        space = _SPACE.match(self._text, position)
        assert space is not None
        return space.end()

    def _unexpected(self) -> BrokenJsonError:
        found = self._text[self.position : self.position + 20]
        if not found:
            return BrokenJsonError("the JSON is cut off")
        return BrokenJsonError(f"the JSON cannot be read at {found!r}")
