"""Review sheets: the same rows as CSV and as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from dramaturg.datasets.spreadsheet import write_table

ACCEPTED, EDITED, REJECTED = "accepted", "edited", "rejected"
"""The values of the column "status"."""


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
