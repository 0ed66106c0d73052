"""Parses candidates: splits the text of a model into steps.

A list is recognised by its numbering, which must ascend from 0 or 1, else by its bullets, else as a Markdown
table with numbered rows or one column, else by short lines of one sentence each. "2.5 cups", "at 10. Then",
years and times are not step numbers. The text around the list is returned separately. Reasoning between marks
and rulers are not read.

Possible numbers and marks of steps are found first: "1.", "(2)", "Step 3:", "第四步", "⑤", bullets.
Which of them form a list is decided then.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.content_pb2 import Conversation, Document
from dramaturg.api.common.v1.script_pb2 import Candidate, Edge
from dramaturg.api.common.v1.verdict_pb2 import Reading
from dramaturg.judge.reasoning import blanked
from dramaturg.judge.step_tables import find_step_table, has_table, is_ruler

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
_TAB_WIDTH = 4
# No year is a step number: four digits count only at the start of a line and next to the number before.
_FOUR_DIGITS = 1000
_MAY_BEGIN = re.compile(
    r"[\d(（\[【①-⑳第零〇一二两三四五六七八九十百]|step|schritt|étape|etape|paso|passo|шаг|ステップ|步骤|步驟",
    re.IGNORECASE,
)
_ALL = {**_INLINE, **_AT_LINE_START}
_MIN_WITHIN_LINE = 3
# The maximum number of tried starts of a list within a line, which keeps the time linear.
_MAX_BEGINNINGS = 20
_PUNCTUATION = re.compile(r"[.;:,!?…。；：，！？、)\]）】*]\s*\Z")
MAX_STEPS = 1000
"""The maximum number of steps of a script (``common.v1.Script``). A text with a longer list has no steps."""
MIN_LINES = 3
"""The minimum number of unmarked lines that count as steps."""
MAX_LINE_LENGTH = 200
"""The maximum length of an unmarked line that counts as a step, in characters."""

_SENTENCE_END = re.compile(r"[.!?][\"')\]]?\s+\S|[。！？]\s*\S")
_NOTE = re.compile(
    r"\s*[*_#> ]*(?:notes?|tips?|warnings?|caution|reminder|disclaimer|important"
    r"|注意|注|提示|小贴士|备注|警告)"
    r"[*_ ]*(?:\d{1,2})?[*_ ]*[:：]",
    re.IGNORECASE,
)
_BLANK_LINES = re.compile(r"\n[ \t]*+\n")
_CODE_FENCE = re.compile(r"[ \t]*(?:```|~~~)[\w-]*[ \t]*\Z")


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
    for start, line_end in _marker_lines(text):
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
        _BULLET.match(text, start, end) for start, end in _marker_lines(text) if not is_ruler(text[start:end])
    )
    return [
        Marker(BULLET, 0, bullet.start(), bullet.end(), "", _width(bullet["indent"]))
        for bullet in found
        if bullet
    ]


def _marker_lines(text: str) -> Iterator[tuple[int, int]]:
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


def ascending(text: str, markers: Sequence[Marker]) -> Sequence[Marker]:
    """Returns the markers of a list: one family with ascending numbers. Empty: there is no list.

    The family that begins first wins, so that "1." within "Step 1:" is a part of the step.
    """
    families: dict[str, list[Marker]] = {}
    for marker in markers:
        families.setdefault(marker.family, []).append(marker)
    chains = [chain for family in families.values() if (chain := _chain(text, family))]
    long = [chain for chain in chains if len(chain) > 1]
    if long:
        return min(long, key=lambda chain: chain[0].start)
    # A single number marks a step only where no text precedes it.
    return next((chain for chain in chains if not text[: chain[0].start].strip()), ())


def _chain(text: str, family: Sequence[Marker]) -> list[Marker]:
    at_line_start = [marker for marker in family if not marker.within_line]
    chain = _along_lines(at_line_start)
    if len(chain) > 1:
        return _with_gaps_filled(chain, family)
    return _within_lines(text, family) or chain


def _along_lines(markers: Sequence[Marker]) -> list[Marker]:
    """Returns the numbers at line starts of the outermost level, otherwise of any indentation."""
    start = _first(markers)
    if start is None:
        return []
    following = markers[markers.index(start) :]
    outer = [marker for marker in following if marker.indent <= start.indent + 1]
    chain = list(_rising(outer))
    return chain if len(chain) > 1 else list(_rising(following))


def _first(markers: Sequence[Marker]) -> Marker | None:
    """Returns the start of a list: 0 or 1, else the first number whose successor follows."""
    start = next((marker for marker in markers if marker.number <= 1), None)
    if start is not None:
        return start
    return next((one for one, other in pairwise(markers) if other.number == one.number + 1), None)


def _rising(markers: Sequence[Marker]) -> Iterator[Marker]:
    """Drops numbers that do not continue the list. One number may be missing, and a list may restart at 1."""
    last = None
    for marker in markers:
        begins_again = marker.number == 1 and not marker.within_line
        if last is None or begins_again or last < marker.number <= last + 2:
            yield marker
            last = marker.number


def _with_gaps_filled(chain: list[Marker], family: Sequence[Marker]) -> list[Marker]:
    """Adds numbers within lines that fit between two at line starts: "1. a 2. b", "3. c 4. d"."""
    positions = [marker.start for marker in family]
    places = [bisect_left(positions, marker.start) for marker in chain]
    filled: list[Marker] = []
    any_filled = False
    for place, following in zip(places, [*places[1:], None], strict=True):
        filled.append(family[place])
        between = _consecutive(family[place], family[place + 1 : following])
        if following is None:
            filled += between if any_filled else ()
        elif between and len(between) >= (wanted := family[following].number - family[place].number - 1) > 0:
            filled += between[:wanted]
            any_filled = True
    return filled


def _consecutive(marker: Marker, following: Iterable[Marker]) -> list[Marker]:
    found: list[Marker] = []
    for other in following:
        if other.within_line and other.number == marker.number + len(found) + 1:
            found.append(other)
    return found


def _within_lines(text: str, family: Sequence[Marker]) -> list[Marker]:
    """Returns the list of a single line. A list of two items needs punctuation before the second number."""
    places = (place for place, marker in enumerate(family) if marker.number == 1)
    for place in islice(places, _MAX_BEGINNINGS):
        start = family[place]
        opens = not start.within_line or _begins_clause(text, start)
        chain = [start, *_consecutive(start, family[place + 1 :])] if opens else []
        if len(chain) >= _MIN_WITHIN_LINE or (len(chain) > 1 and _begins_clause(text, chain[1])):
            return chain
    return []


def _begins_clause(text: str, marker: Marker) -> bool:
    before = text[max(0, marker.start - 8) : marker.start]
    return not before.strip() or _PUNCTUATION.search(before) is not None


@dataclass(frozen=True)
class Listing:
    """A text, split into steps and the text around them."""

    steps: tuple[str, ...] = ()
    """The steps without their marks, none blank. Empty: there is no list in the text."""
    preamble: str = ""
    """The text before the first step."""
    notes: str = ""
    """The text after the last step."""


@dataclass(frozen=True, slots=True)
class ParsedCandidate:
    """A parsed candidate."""

    id: str
    """Its id within the request."""
    steps: tuple[str, ...]
    """Its steps, where the reading is READING_STEPS; findings point into them."""
    text: str
    """The whole original text; separate steps are joined, one per line."""
    reading: Reading.ValueType
    """The reading."""
    preamble: str = ""
    """The text before the first step."""
    notes: str = ""
    """The text after the last step."""
    edges: Sequence[Edge] = ()
    """The partial order over the steps. Empty: they are ordered as listed."""
    context: Sequence[Document] = ()
    """The documents that it rests on, besides those of the task."""
    conversation: Conversation | None = None
    """The conversation that is judged; ``text`` is then the last answer of its assistant. None: a text or a
    script.
    """


def parse_candidate(candidate: Candidate) -> ParsedCandidate:
    """Parses a candidate. Separate steps stay unchanged, including blank ones, unless all are blank."""
    notes = preamble = ""
    edges: Sequence[Edge] = ()
    if candidate.WhichOneof("content") == "script":
        steps = tuple(step.text for step in candidate.script.steps)
        text = "\n".join(steps)
        edges = candidate.script.edges
    else:
        text = candidate.text
        listing = parse_listing(text)
        steps, preamble, notes = listing.steps, listing.preamble, listing.notes
    if is_blank(text):
        return ParsedCandidate(candidate.id, (), text, verdict_pb2.READING_EMPTY)
    reading = verdict_pb2.READING_STEPS if steps else verdict_pb2.READING_TEXT
    return ParsedCandidate(candidate.id, steps, text, reading, preamble, notes, edges)


def split_steps(text: str) -> tuple[str, ...]:
    """Returns the steps of a text without marks; none is blank. Empty: the text has no list."""
    return parse_listing(text).steps


def parse_listing(text: str) -> Listing:
    """Splits a text into the steps of its list and the text around them. Never raises."""
    text = (
        blanked(text)
        .removeprefix("\ufeff")
        .replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace("\u2028", "\n")
        .replace("\u2029", "\n")
    )
    markers = ascending(text, find_markers(text)) or _bulleted(text)
    return _cut(text, markers) if markers else _tabled(text) or _lines(text)


def is_blank(text: str) -> bool:
    """Whether a text consists only of white space, control characters and invisible characters."""
    return all(character.isspace() or unicodedata.category(character) in {"Cc", "Cf"} for character in text)


def _bulleted(text: str) -> Sequence[Marker]:
    bullets = find_bullets(text)
    if not bullets:
        return ()
    outermost = min(bullet.indent for bullet in bullets)
    bullets = [bullet for bullet in bullets if bullet.indent <= outermost + 1]
    alone = len(bullets) == 1 and bool(text[: bullets[0].start].strip())
    return () if alone else bullets


def _cut(text: str, markers: Sequence[Marker]) -> Listing:
    ends = [*(marker.start for marker in markers[1:]), len(text)]
    pieces = [
        marker.prefix + text[marker.end : end].lstrip() for marker, end in zip(markers, ends, strict=True)
    ]
    pieces[-1], notes = _split_notes(pieces[-1], within_line=markers[-1].within_line)
    steps = tuple(step for piece in pieces if not is_blank(step := _tidy(piece)))
    if not 0 < len(steps) <= MAX_STEPS:
        return Listing()
    return Listing(steps, _tidy(text[: markers[0].start]), _tidy(notes))


def _split_notes(last: str, *, within_line: bool) -> tuple[str, str]:
    """Separates the last step from the text after the list: a new paragraph, or a line with "Note:"."""
    lines = last.split("\n")
    begun = False
    for index, line in enumerate(lines[1:], start=1):
        begun = begun or not is_blank(lines[index - 1])
        own_paragraph = not lines[index - 1].strip() and line.strip() and not line[0].isspace()
        if begun and (own_paragraph or _NOTE.match(line) or (within_line and line.strip())):
            return "\n".join(lines[:index]), "\n".join(lines[index:])
    return last, ""


def _tidy(piece: str) -> str:
    lines = (line.strip() for line in piece.split("\n") if not _CODE_FENCE.match(line) and not is_ruler(line))
    return "\n".join(line for line in lines if line)


def _tabled(text: str) -> Listing | None:
    """The rows of a table. None: there is no table in the text."""
    lines = text.split("\n")
    if not has_table(lines):
        return None
    table = find_step_table(lines)
    if table is None:
        return Listing()
    steps = tuple(step for step in table.steps if not is_blank(step))
    if not 0 < len(steps) <= MAX_STEPS:
        return Listing()
    around = lines[: table.start], lines[table.end :]
    preamble, notes = (_tidy("\n".join(part)) for part in around)
    return Listing(steps, preamble, notes)


def _lines(text: str) -> Listing:
    lines, preamble, notes = _only_block(text)
    if lines and lines[0].endswith((":", "：")):
        first, *lines = lines
        preamble = f"{preamble}\n{first}".strip()
    if not MIN_LINES <= len(lines) <= MAX_STEPS or not all(map(_looks_like_step, lines)):
        return Listing()
    return Listing(tuple(lines), preamble, notes)


def _only_block(text: str) -> tuple[list[str], str, str]:
    """Returns the lines of a text without the single lines before and after its only block of lines."""
    blocks = [
        lines for block in _BLANK_LINES.split(text) if (lines := [*filter(None, _tidy(block).split("\n"))])
    ]
    long = [index for index, lines in enumerate(blocks) if len(lines) >= MIN_LINES]
    if len(long) != 1 or any(len(lines) > 1 for index, lines in enumerate(blocks) if index != long[0]):
        return [line for lines in blocks for line in lines], "", ""
    before, after = blocks[: long[0]], blocks[long[0] + 1 :]
    return blocks[long[0]], "\n".join(line for [line] in before), "\n".join(line for [line] in after)


def _looks_like_step(line: str) -> bool:
    """Whether a line may be one step: short, one sentence, not within a wrapped paragraph."""
    return (
        len(line) <= MAX_LINE_LENGTH
        and not line[0].islower()
        and not is_blank(line)
        and _SENTENCE_END.search(line) is None
    )
