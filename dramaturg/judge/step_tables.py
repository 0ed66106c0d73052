"""Finds the steps of a script that is written as a Markdown table: a row is a step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PIPE = re.compile(r"(?<!\\)\|")
_DELIMITER_CELL = re.compile(r":?-+:?")
_NUMBER = re.compile(r"[*_]*(?:step|步骤|第)?\s*(\d{1,4})\s*步?[.):、]?[*_]*", re.IGNORECASE)
_RULER = re.compile(r"[ \t]*([-*_=])(?:[ \t]*\1){2,}[ \t]*")


@dataclass(frozen=True)
class StepTable:
    """A table whose rows are steps.

    Attributes:
        steps: The rows without their numbers; cells are separated by " | ".
        start: The index of its first line, or of its delimiter row if the heading is no step.
        end: The index of the line after its last one.
    """

    steps: tuple[str, ...]
    start: int
    end: int


def is_ruler(line: str) -> bool:
    """Whether a line only separates: at least three hyphens, asterisks, underscores or equals signs."""
    return _RULER.fullmatch(line) is not None


def has_table(lines: Sequence[str]) -> bool:
    """Whether there is a Markdown table among the lines."""
    return any(_is_delimiter(line) for line in lines)


def find_step_table(lines: Sequence[str]) -> StepTable | None:
    """Finds the only table of the lines whose first column counts its rows from 0 or 1.

    If none does, the only table is taken if it has one column. Other tables are not steps: their rows may be
    ingredients. A heading that is counted too is a step.
    """
    tables = _tables(lines)
    numbered = [steps for table in tables if (steps := _numbered(lines, table)) is not None]
    if numbered:
        return numbered[0] if len(numbered) == 1 else None
    if len(tables) != 1:
        return None
    [(start, end)] = tables
    rows = [_cells(line) for line in lines[start + 2 : end]]
    if any(len(row) != 1 for row in rows):
        return None
    return StepTable(tuple(row[0] for row in rows), start + 1, end)


def _tables(lines: Sequence[str]) -> list[tuple[int, int]]:
    """The first line, which is the heading, and the end of each table with rows."""
    found = []
    end = 0
    for index in range(1, len(lines)):
        if index <= end or not _is_delimiter(lines[index]) or "|" not in lines[index - 1]:
            continue
        end = index + 1
        while end < len(lines) and "|" in lines[end]:
            end += 1
        if end > index + 1:
            found.append((index - 1, end))
    return found


def _numbered(lines: Sequence[str], table: tuple[int, int]) -> StepTable | None:
    start, end = table
    rows = [_cells(lines[index]) for index in (start, *range(start + 2, end))]
    numbers = [
        int(match[1]) if len(row) > 1 and (match := _NUMBER.fullmatch(row[0])) else None for row in rows
    ]
    if numbers[0] is None:
        rows, numbers, start = rows[1:], numbers[1:], start + 1
    if numbers[0] not in (0, 1) or numbers != [*range(numbers[0], numbers[0] + len(numbers))]:
        return None
    return StepTable(tuple(" | ".join(filter(None, row[1:])) for row in rows), start, end)


def _is_delimiter(line: str) -> bool:
    return "|" in line and all(map(_DELIMITER_CELL.fullmatch, _cells(line)))


def _cells(line: str) -> list[str]:
    return [
        cell.strip().replace("\\|", "|")
        for cell in _PIPE.split(line.strip().removeprefix("|").removesuffix("|"))
    ]
