"""The sheet on which people accept, edit and label scenarios: the same rows as CSV and as JSON Lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ANNOTATOR = "annotator_"
"""What the columns of annotators begin with; there may be any number of them."""
COLUMNS = (
    "id",
    "format",
    "goal",
    "overall_goal",
    "option_1",
    "option_2",
    "target",
    "base_scenario",
    "scenario",
    "leaks_option",
    "near_duplicate_of",
    "model",
    "status",
    "edited_scenario",
    "gold",
    "level",
    f"{ANNOTATOR}1",
    f"{ANNOTATOR}2",
    f"{ANNOTATOR}3",
)
"""The columns. Those after "model" are for people; docs/decisions.md says what goes where."""


def write_sheet(folder: Path, rows: Sequence[Mapping[str, str]]) -> tuple[Path, Path]:
    """Writes ``review.csv`` and ``review.jsonl``; files that are there are replaced.

    Raises:
        OSError: The folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table, lines = folder / "review.csv", folder / "review.jsonl"
    filled = [{name: row.get(name, "") for name in COLUMNS} for row in rows]
    # The mark lets spreadsheets read the file as UTF-8.
    with table.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(filled)
    lines.write_text(_dump(filled), encoding="utf-8")
    return table, lines


def read_sheet(file: Path) -> list[tuple[int, Mapping[str, str]]]:
    """Reads rows of JSON Lines, where the first character is ``{``, or of CSV, each with its line's number.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not such a file; the message names the line.
    """
    text = file.read_text(encoding="utf-8-sig")
    rows = list(_json_rows(text) if text.lstrip().startswith("{") else _csv_rows(text))
    if not rows:
        raise ValueError("has no rows")
    return [
        (line, {name: "" if value is None else str(value).strip() for name, value in row.items()})
        for line, row in rows
    ]


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
