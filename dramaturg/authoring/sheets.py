"""Sheets that people review what models wrote on: the same rows as CSV and as JSON Lines."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ACCEPTED, EDITED, REJECTED = "accepted", "edited", "rejected"
"""What can stand in the column "status"."""
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
    filled = [{name: row.get(name, "") for name in columns} for row in rows]
    # The mark lets spreadsheets read the file as UTF-8.
    with table.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(filled)
    lines.write_text(_dump(filled), encoding="utf-8")
    return table, lines


def read_sheet(file: Path) -> list[tuple[int, Mapping[str, str]]]:
    """Reads rows of JSON Lines, where the first character is ``{``, or of CSV, each with its line's number.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not such a file; the message names the line or the column.
    """
    text = file.read_text(encoding="utf-8-sig")
    rows = list(_json_rows(text) if text.lstrip().startswith("{") else _csv_rows(text))
    if not rows:
        raise ValueError("has no rows")
    for column in REQUIRED:
        if not any(column in row for _, row in rows):
            raise ValueError(f"has no column {column!r}: is it such a sheet?")
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


def _dump(rows: Iterable[Mapping[str, str]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _json_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"line {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise TypeError(f"line {number} is not an object")
        yield number, row


def _csv_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(f"line {reader.line_num} has not as many cells as the header")
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num} is not CSV: {error}") from error
