"""Parses candidates: splits the text of a model into steps.

A list is recognised by its numbering, which must ascend from 0 or 1, else by its bullets, else as a Markdown
table with numbered rows or one column, else by short lines of one sentence each. "2.5 cups", "at 10. Then",
years and times are not step numbers. The text around the list is returned separately. Reasoning between marks
and rulers are not read.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.content_pb2 import Conversation, Document
from dramaturg.api.common.v1.script_pb2 import Candidate, Edge
from dramaturg.api.common.v1.verdict_pb2 import Reading
from dramaturg.judge.list_numbers import ascending
from dramaturg.judge.markers import Marker, find_bullets, find_markers
from dramaturg.judge.reasoning import blanked
from dramaturg.judge.step_tables import find_step_table, has_table, is_ruler

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
