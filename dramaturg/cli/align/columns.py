"""Reads the cells of rows: what stands in a column, as what it must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dramaturg.cli.align.rows import Rows, number

QUOTED = 40
"""The most characters of a cell that a message repeats."""
_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Cells:
    """One row of a file, with its line for messages.

    Args:
        rows: The file.
        line: The number of the row's line.
        row: Its cells by column.
    """

    def __init__(self, rows: Rows, line: int, row: Mapping[str, Any]) -> None:
        self._rows, self.line, self._row = rows, line, row

    def text(self, column: str) -> str:
        """What stands in a column; empty where nothing does."""
        value = self._row.get(column)
        return "" if value is None else str(value).strip()

    def quoted(self, column: str) -> str:
        """What stands in a column, for messages: cut where it is long."""
        text = self.text(column)
        return repr(text if len(text) <= QUOTED else f"{text[:QUOTED]}...")

    def required(self, column: str) -> str:
        """What stands in a column.

        Raises:
            typer.BadParameter: Nothing does.
        """
        if not (text := self.text(column)):
            self._rows.refuse(self.line, f"has nothing in column {column!r}")
        return text

    def number(self, column: str, *, lowest: float = -1e12, highest: float = 1e12) -> float | None:
        """The number in a column; ``None`` where nothing stands there.

        Raises:
            typer.BadParameter: What stands there is no number, or out of range.
        """
        if not self.text(column):
            return None
        found = number(self._row[column])
        if found is None or not lowest <= found <= highest:
            wanted = f"no number from {lowest:g} to {highest:g}"
            self._rows.refuse(self.line, f"has {self.quoted(column)} in column {column!r}, {wanted}")
        return found

    def truth(self, column: str) -> bool | None:
        """Whether a column says true; ``None`` where nothing stands there.

        Raises:
            typer.BadParameter: It says neither true nor false.
        """
        if not (text := self.text(column).lower()):
            return None
        if text not in _TRUTHS:
            refused = f"has {self.quoted(column)} in column {column!r}, neither true nor false"
            self._rows.refuse(self.line, refused)
        return _TRUTHS[text]
