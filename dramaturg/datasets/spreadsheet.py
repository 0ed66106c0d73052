"""Tables that people open in a spreadsheet: CSV whose cells are never formulas, and its reader.

A spreadsheet takes a cell that begins with one of ``= + - @``, a tab, a carriage return or a line feed for
a formula, or looks for one behind it (OWASP, CSV injection). Such a cell is written with an apostrophe before
it, and read back without.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dramaturg.datasets.json_lines import LineError, first_character, json_objects

_MARK = "'"
# The full-width forms are formulas in some locales. A cell that already begins with apostrophes before such a
# character gets one more, so that reading is the exact inverse.
_RISKY = re.compile(rf"{_MARK}*[=+\-@\t\r\n＝＋－＠]")


def escape_cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula. ``unescape_cell`` is the inverse."""
    return f"{_MARK}{text}" if _RISKY.match(text) else text


def unescape_cell(text: str) -> str:
    """The text that ``escape_cell`` made a cell of."""
    return text[1:] if text.startswith(_MARK) and _RISKY.match(text) else text


def csv_record(cells: Iterable[Any]) -> str:
    """One line of CSV (RFC 4180) with its end. Texts are escaped; numbers stay; None is an empty cell."""
    line = io.StringIO(newline="")
    csv.writer(line).writerow([escape_cell(cell) if isinstance(cell, str) else cell for cell in cells])
    return line.getvalue()


def write_table(file: Path, columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> None:
    """Writes a table as CSV; a file that exists is replaced.

    Args:
        file: The file.
        columns: The columns, in order.
        rows: The cells of each row by column; an absent cell is empty.

    Raises:
        OSError: The file cannot be written.
    """
    # The byte order mark lets spreadsheets read the file as UTF-8.
    with file.open("w", encoding="utf-8-sig", newline="") as opened:
        opened.write(csv_record(columns))
        opened.writelines(csv_record([row.get(name, "") for name in columns]) for row in rows)


def header_problem(names: Sequence[str]) -> str:
    """Says why the columns of CSV cannot be told apart. Empty: they can."""
    twice = next((name for name, count in Counter(names).items() if name and count > 1), "")
    if twice:
        return f"has the column {twice} twice"
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        return f"has one column, {names[0]}: columns are separated by commas"
    return ""


def read_table(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """Reads JSON Lines, where the first character is ``{``, or CSV with a header.

    Returns:
        The cells of each row by column, with the number of the row's last line, from 1. Cells of CSV are
        texts, those of JSON Lines are JSON values.

    Raises:
        LineError: The file is neither; the message names the line.
        OSError: The file cannot be read.
    """
    if first_character(file) == "{":
        return list(json_objects(file))
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LineError(file, 0, f"is not UTF-8: {error.reason} at byte {error.start}") from error
    reader = csv.reader(io.StringIO(text, newline=""))
    rows: list[tuple[int, dict[str, Any]]] = []
    try:
        header = [unescape_cell(name) for name in next(reader, [])]
        if problem := header_problem(header):
            raise LineError(file, 1, problem)
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                problem = f"has {len(cells)} cells; the header has {len(header)}"
                raise LineError(file, reader.line_num, problem)
            rows.append((reader.line_num, dict(zip(header, map(unescape_cell, cells), strict=True))))
    except csv.Error as error:
        raise LineError(file, reader.line_num, f"is not CSV: {error}") from error
    return rows
