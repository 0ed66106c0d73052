"""Finds possible numbers and marks of steps in a text: "1.", "(2)", "Step 3:", "第四步", "⑤", bullets.

Markers are candidates; ``dramaturg.judge.steps`` decides which of them form a list.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

BULLET = "bullet"
"""The family of all bullets."""

_HAN_DIGITS = {character: value for value, character in enumerate("零一二三四五六七八九")} | {
    "两": 2,
    "〇": 0,
}
_HAN = "[零〇一二两三四五六七八九十百]{1,5}"
# The characters before and after must not make the digits a part of a number, a price, a date or a word.
_NUMBER = r"(?<![\w.,:/$€£¥%+\-])(?P<n>\d{1,4})"
_FOLLOWED = r"(?=[^\d\s]|\s|\Z)"

_INLINE: dict[str, re.Pattern[str]] = {
    "step-word": re.compile(
        r"(?<!\w)(?:step|schritt|étape|etape|paso|passo|шаг|ステップ|步骤|步驟)[ \t]*(?P<n>\d{1,4}|"
        + _HAN
        + r")"
        r"(?![\d\w])[ \t]*(?P<close>\*\*|__)?[ \t]*(?:[.:：)）、\]]|[-–—](?=\s)|(?=\s|\*|\Z))",
        re.IGNORECASE,
    ),
    "ordinal-step": re.compile(
        r"第[ \t]*(?P<n>\d{1,4}|" + _HAN + r")[ \t]*步[ \t]*(?P<close>\*\*|__)?[.:：、，,]?"
    ),
    "dot": re.compile(_NUMBER + r"(?P<close>\*\*|__)?[.．](?=[^\d\s.．]|\s|\Z)"),
    "parenthesis": re.compile(_NUMBER + r"(?P<close>\*\*|__)?[)）]" + _FOLLOWED),
    "brackets": re.compile(
        r"[(（\[【][ \t]*(?P<n>\d{1,4}|" + _HAN + r")[ \t]*[)）\]】](?P<close>\*\*|__)?[.:：、]?"
    ),
    "comma": re.compile(_NUMBER + r"(?P<close>\*\*|__)?、"),
    "colon": re.compile(_NUMBER + r"(?P<close>\*\*|__)?(?::(?=\s|\Z)|：)"),
    "circled": re.compile(r"(?P<n>[①-⑳])(?P<close>)[.:：、]?"),
    "keycap": re.compile("(?P<n>[0-9])\ufe0f?\u20e3(?P<close>)[.:：]?"),
}
# Forms that number a step only at the start of a line.
_AT_LINE_START: dict[str, re.Pattern[str]] = {
    "dash": re.compile(r"(?P<n>\d{1,4})(?P<close>\*\*|__)?[ \t]*[-–—][ \t]+(?=\D)"),
    "han": re.compile(r"(?P<n>" + _HAN + r")(?P<close>\*\*|__)?[、.．:：)）]"),
}
_BEFORE = re.compile(
    r"(?P<indent>[ \t\u3000]*)(?:>[ \t]*)*(?:[-*+•][ \t]+)?(?:#{1,6}[ \t]*)?(?P<bold>\*\*|__)?[ \t]*"
)
_BULLET = re.compile(r"(?P<indent>[ \t\u3000]*)(?:[*+•·●▪◦‣○■□➢➤✓✔–—-])[ \t]+(?:\[[ xX]\][ \t]+)?(?=\S)")
_RULE = re.compile(r"[ \t]*([-*_=])(?:[ \t]*\1){2,}[ \t]*\Z")
_TAB_WIDTH = 4
# No year is a step number: four digits count only at the start of a line and next to the number before.
_FOUR_DIGITS = 1000
_MAY_BEGIN = re.compile(
    r"[\d(（\[【①-⑳第零〇一二两三四五六七八九十百]|step|schritt|étape|etape|paso|passo|шаг|ステップ|步骤|步驟",
    re.IGNORECASE,
)
_ALL = {**_INLINE, **_AT_LINE_START}


@dataclass(frozen=True)
class Marker:
    """A possible start of a step."""

    family: str
    """The family. The markers of a list have the same family."""
    number: int
    """Its number; 0 for a bullet."""
    start: int
    """The index of its start; for a marker at the start of a line, the start of the line."""
    end: int
    """The index at which the step's text starts."""
    prefix: str
    """The prefix of the step's text: the mark of bold type that starts before the number."""
    indent: int
    """The width of the white space before it on its line; -1 within a line."""

    @property
    def within_line(self) -> bool:
        """Whether other text precedes it on its line."""
        return self.indent < 0


def find_markers(text: str) -> list[Marker]:
    """Returns all possible markers except bullets, in the order of the text."""
    at_line_start: dict[tuple[str, int], Marker] = {}
    last: dict[str, int] = {}
    for start, line_end in _lines(text):
        before = _BEFORE.match(text, start, line_end)
        if before is None or not _MAY_BEGIN.match(text, before.end(), line_end):
            continue
        for family, shape in _ALL.items():
            found = shape.match(text, before.end(), line_end)
            number = _number(found["n"]) if found else None
            if number is not None and number >= _FOUR_DIGITS and not 1 <= number - last.get(family, 0) <= 2:
                continue
            if found and number is not None:
                last[family] = number
                # Bold type that ends right after the number belongs to the marker.
                prefix = "" if found["close"] else before["bold"] or ""
                end = found.end()
                if prefix and text.startswith(prefix, end):
                    prefix, end = "", end + len(before["bold"])
                at_line_start[family, found.start()] = Marker(
                    family, number, start, end, prefix, _width(before["indent"])
                )
    within = (
        Marker(family, number, found.start(), found.end(), "", -1)
        for family, shape in _INLINE.items()
        for found in shape.finditer(text)
        if (family, found.start()) not in at_line_start
        if (number := _number(found["n"])) is not None and number < _FOUR_DIGITS
    )
    return sorted([*at_line_start.values(), *within], key=lambda marker: marker.start)


def find_bullets(text: str) -> list[Marker]:
    """Returns all bullets, in the order of the text."""
    found = (
        _BULLET.match(text, start, end) for start, end in _lines(text) if not _RULE.match(text, start, end)
    )
    return [
        Marker(BULLET, 0, bullet.start(), bullet.end(), "", _width(bullet["indent"]))
        for bullet in found
        if bullet
    ]


def _lines(text: str) -> Iterator[tuple[int, int]]:
    """Yields the start and the end of each line."""
    start = 0
    for line in text.split("\n"):
        yield start, start + len(line)
        start += len(line) + 1


def _width(indent: str) -> int:
    return len(indent.expandtabs(_TAB_WIDTH).replace("\u3000", "  "))


def _number(written: str) -> int | None:
    if written.isdecimal():
        return int(written)
    if len(written) == 1 and written not in "十百" and written not in _HAN_DIGITS:
        return int(unicodedata.numeric(written))
    return _han_number(written)


def _han_number(written: str) -> int | None:
    """Reads a Chinese numeral below 1000. None: it is not a numeral, for example "一二"."""
    total, digit = 0, None
    for character in written:
        if character in _HAN_DIGITS:
            if digit:
                return None
            digit = _HAN_DIGITS[character]
        else:
            total += (1 if digit is None else digit) * (10 if character == "十" else 100)
            digit = None
    return total + (digit or 0)
