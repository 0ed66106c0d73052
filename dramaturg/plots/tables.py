"""Tables in the layout of a paper, as Markdown, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.datasets.spreadsheet import csv_record

ABSENT = "–"
"""The text of a figure that is not defined."""
PRINTED_NOTE = "In brackets: the number that the paper prints."
"""The note of a table with printed numbers."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "→": r"$\to$",
    "×": r"$\times$",
}


@dataclass(frozen=True)
class Cell:
    """A cell: a text, or a figure with its text."""

    text: str
    """The text."""
    value: float | None = None
    """The figure in full precision. None: the cell has none."""
    printed: str = ""
    """The number that the paper prints in this place. Empty: none."""


@dataclass(frozen=True)
class Column:
    """A column."""

    name: str
    """The head."""
    group: str = ""
    """The head above it that adjacent columns share. Empty: none."""

    @property
    def full_name(self) -> str:
        """Both heads, e.g. "Easy: gpt-4o"."""
        return f"{self.group}: {self.name}" if self.group and self.name else self.name or self.group


@dataclass(frozen=True)
class Row:
    """A row."""

    cells: Sequence[Cell]
    """A cell for each column."""
    ruled: bool = False
    """Whether a rule is above it."""


@dataclass(frozen=True)
class Table:
    """A table of a paper."""

    name: str
    """The name of its files, e.g. "table-3"."""
    title: str
    """The caption."""
    columns: Sequence[Column]
    """The columns; the first ``label_count`` of them name the row."""
    rows: Sequence[Row]
    """The rows."""
    label_count: int = 1
    """The number of columns of words."""
    notes: Sequence[str] = field(default=())
    """Sentences below the table."""
    printed_note: str = PRINTED_NOTE
    """The note on the numbers in brackets."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"{self.name}: {len(row.cells)} cells in {len(self.columns)} columns")

    @property
    def all_notes(self) -> Sequence[str]:
        """The notes, with that on printed numbers where there are any."""
        printed = any(cell.printed for row in self.rows for cell in row.cells)
        return (*([self.printed_note] if printed else []), *self.notes)


def words(text: str, printed: str = "") -> Cell:
    """A cell of words."""
    return Cell(text, printed=printed)


def count(number: int, printed: str = "") -> Cell:
    """A cell with a number of items."""
    return Cell(str(number), number, printed)


def number(value: float | None, digits: int, printed: str = "") -> Cell:
    """A cell with a figure. None: the figure is not defined."""
    return Cell(ABSENT if value is None else f"{value:.{digits}f}", value, printed)


def probability(value: float | None, digits: int) -> Cell:
    """A cell with a probability, which is below the last digit rather than 0. None: it is not defined."""
    cell, least = number(value, digits), 10**-digits
    return cell if value is None or value >= least / 2 else Cell(f"< {least:.{digits}f}", value)


def percent(value: float | None, digits: int, printed: str = "") -> Cell:
    """A cell with a share from 0 to 1, in percent."""
    return number(None if value is None else 100 * value, digits, printed)


def share(part: int, parts: Sequence[int], digits: int, printed: str = "") -> Cell:
    """A cell with the share of a part, in percent. Not defined if all parts are 0."""
    return percent(part / sum(parts) if sum(parts) else None, digits, printed)


def estimate(found: Estimate | None, digits: int, printed: str = "") -> Cell:
    """A cell with an estimate. None: there is none."""
    return number(found.value if found is not None and found.HasField("value") else None, digits, printed)


def average(cells: Iterable[Cell], digits: int, printed: str = "") -> Cell:
    """The mean of the figures above, as in a row "Average". Not defined if one of them is not."""
    values = [cell.value for cell in cells]
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known and len(known) == len(values) else None
    return number(mean, digits, printed)


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown, with its caption and notes."""
    heads = [_markdown_cell(column.full_name) for column in table.columns]
    rules = ["---" if index < table.label_count else "---:" for index in range(len(heads))]
    lines = [f"### {table.title}", "", _line(heads), _line(rules)]
    lines += [_line(_markdown_cell(_text(cell)) for cell in row.cells) for row in table.rows]
    for note in table.all_notes:
        lines += ["", note]
    return "\n".join(lines) + "\n"


def csv(table: Table) -> str:
    """The table as CSV: figures in full precision, printed numbers in columns of their own."""
    printed = [any(row.cells[index].printed for row in table.rows) for index in range(len(table.columns))]
    heads: list[str] = []
    for column, has_printed in zip(table.columns, printed, strict=True):
        heads += [column.full_name, *([f"{column.full_name} (paper)"] if has_printed else [])]
    lines = [csv_record(heads)]
    for row in table.rows:
        cells: list[str | float | None] = []
        for cell, has_printed in zip(row.cells, printed, strict=True):
            text = None if cell.text == ABSENT else cell.text
            cells += [text if cell.value is None else cell.value, *([cell.printed] if has_printed else [])]
        lines.append(csv_record(cells))
    return "".join(lines)


def latex(table: Table) -> str:
    """The table in LaTeX, with the rules of the package booktabs."""
    form = "l" * table.label_count + "r" * (len(table.columns) - table.label_count)
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{form}}}", r"\toprule"]
    if any(column.group for column in table.columns):
        lines += _latex_groups(table)
    lines += [_latex_line(column.name for column in table.columns), r"\midrule"]
    for index, row in enumerate(table.rows):
        if row.ruled and index:
            lines.append(r"\midrule")
        lines.append(_latex_line(map(_text, row.cells)))
    lines += [r"\bottomrule", r"\end{tabular}"]
    caption = " ".join((f"{table.title.rstrip('.')}.", *table.all_notes))
    lines += [rf"\caption{{{_escape_latex(caption)}}}", rf"\label{{tab:{table.name}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _text(cell: Cell) -> str:
    return f"{cell.text} [{cell.printed}]" if cell.printed else cell.text


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(text: str) -> str:
    # Names of models come from users: nothing in them is markup.
    return "".join(f"\\{one}" if one in "\\|`*_<" else one for one in " ".join(text.split()))


def _latex_groups(table: Table) -> list[str]:
    cells, rules, place = [], [], 1
    for group, members in groupby(table.columns, key=lambda column: column.group):
        width = len(list(members))
        if group:
            cells.append(rf"\multicolumn{{{width}}}{{c}}{{{_escape_latex(group)}}}")
            rules.append(rf"\cmidrule(lr){{{place}-{place + width - 1}}}")
        else:
            cells += [""] * width
        place += width
    return [" & ".join(cells) + r" \\", "".join(rules)]


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(_escape_latex(cell) for cell in cells) + r" \\"


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
