"""Review sheets: the same rows as CSV and as JSON Lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from dramaturg.datasets.json_lines import LineError
from dramaturg.datasets.spreadsheet import read_table, write_table

ACCEPTED, EDITED, REJECTED = "accepted", "edited", "rejected"
"""The values of the column "status"."""
STATUSES = (ACCEPTED, EDITED, REJECTED)
"""All of these."""
REQUIRED = ("id", "status")
"""The columns that every sheet has."""
NOT_REVIEWED = "not reviewed"
"""How a row without a status is counted."""


def write_sheet(folder: Path, columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> tuple[Path, Path]:
    """Writes ``review.csv`` and ``review.jsonl``; files that are there are replaced.

    Args:
        folder: The folder; made where it is not there.
        columns: The columns, in order.
        rows: The cells of each row by column; a cell that is not there is empty.

    Raises:
        OSError: The folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table, lines = folder / "review.csv", folder / "review.jsonl"
    write_table(table, columns, rows)
    filled = ({name: row.get(name, "") for name in columns} for row in rows)
    lines.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in filled), encoding="utf-8")
    return table, lines


def read_sheet(file: Path) -> list[tuple[int, Mapping[str, str]]]:
    """Reads a sheet, as CSV or as JSON Lines.

    Returns:
        The cells of each row by column, without blanks around them, with the number of the row's line.

    Raises:
        LineError: The file is not a sheet; the message names the line or the column.
        OSError: The file cannot be read.
    """
    rows = read_table(file)
    if not rows:
        raise LineError(file, 0, "has no rows")
    for column in REQUIRED:
        if not any(column in row for _, row in rows):
            raise LineError(file, 0, f"has no column {column!r}: is it such a sheet?")
    return [
        (line, {name: "" if value is None else str(value).strip() for name, value in row.items()})
        for line, row in rows
    ]


def kept_rows(
    rows: Iterable[tuple[int, Mapping[str, str]]], statuses: Counter[str], *, unreviewed: bool = False
) -> Iterator[tuple[int, Mapping[str, str], str]]:
    """The rows that people kept: line, cells and status of those neither rejected nor without a status.

    Args:
        rows: The rows of a sheet, each with the number of its line.
        statuses: Every row is counted in it.
        unreviewed: Whether rows without a status are kept too.
    """
    for line, row in rows:
        status = row.get("status", "").casefold()
        statuses[status or NOT_REVIEWED] += 1
        if status != REJECTED and (status or unreviewed):
            yield line, row, status


def status_problems(row: Mapping[str, str], status: str, edited: Sequence[str]) -> Iterator[str]:
    """What is wrong with a status.

    Args:
        row: The cells.
        status: Their status, in lower case.
        edited: The columns that hold what people wrote instead; one is not empty where the status is edited.
    """
    if status not in STATUSES:
        yield f"status: is {status!r}, none of {', '.join(STATUSES)}"
    if status == EDITED and not any(row.get(name) for name in edited):
        missing = "must" if len(edited) == 1 else "one must"
        yield f"{', '.join(edited)}: {missing} not be empty where the status is edited"
