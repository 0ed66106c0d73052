"""Tables that fit the terminal: no name and no figure is ever cut; and the formats of figures.

Where the terminal is narrow, columns of detail are left out, cells fold at their spaces, and columns that do
not fit are printed in a further table below, beside the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from dramaturg.cli.terminal import Terminal, printable
from dramaturg.tables.model import ABSENT, Cell, Section, Table

DIGITS = 3
"""Digits after the decimal point of figures from 0 to 1. Ratings and accuracies of decisions have 2."""


def number(value: float | None, digits: int = DIGITS) -> str:
    """A figure."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def interval(lower: float | None, upper: float | None, digits: int = DIGITS) -> str:
    """An interval, such as "0.500 to 0.750"."""
    return ABSENT if lower is None or upper is None else f"{lower:.{digits}f} to {upper:.{digits}f}"


def estimated(value: float | None, bounds: Sequence[float] | None, why: str, digits: int = DIGITS) -> Cell:
    """A figure with its interval in one cell, or a note why it is undefined.

    Args:
        value: The figure. None: it is undefined.
        bounds: The ends of its interval. None: it has none.
        why: Why it is undefined. Empty: that is not known.
        digits: Digits after the decimal point.
    """
    if value is None:
        return Cell(ABSENT, note=f"undefined: {why}" if why else "")
    if bounds is None:
        return Cell(number(value, digits), value)
    lower, upper = bounds
    text = f"{number(value, digits)} [{number(lower, digits)}, {number(upper, digits)}]"
    return Cell(text, value, (lower, upper), f"{number(lower, digits)} to {number(upper, digits)}")


def named(name: str, absent: str = "(none)") -> str:
    """A name, or a placeholder for an empty one."""
    return name or absent


def model_name(model: str) -> str:
    """A model; "(default)" where a service chose it."""
    return named(model, "(default)")


GAP = 2
"""Characters between two columns."""
HEAD_STYLE = "bold cyan"
"""The style of heads, where the terminal has colours."""
FOLDED_ROWS = 20
"""The most rows of a table that other renderers fold."""

_WORD = re.compile(r"\S+(?: (?:%|pp)(?!\S))?")
"""A word; a unit stays beside its number."""


def print_tables(console: Terminal, *shown: Table | str) -> None:
    """Prints tables and lines, with a blank line after each table; tables without rows are left out."""
    for one in shown:
        if isinstance(one, Table):
            if one.rows:
                console.print(_Grid(one))
                console.print()
        else:
            _print_line(console, one)


def print_sections(console: Terminal, sections: Iterable[Section]) -> None:
    """Prints sections: tables, then what explains them; sections of detail are left out."""
    noted = set()
    for section in sections:
        if section.detail:
            continue
        if any(table.rows and table.caption != section.title for table in section.tables):
            console.print(Text(printable(section.title), style="bold"))
        for table in section.tables:
            if table.rows:
                console.print(_Grid(table))
                if section.note and table is section.tables[-1] and section.note not in noted:
                    console.print(Text(printable(section.note), style="dim"))
                    noted.add(section.note)
                console.print()
        for line in section.lines:
            text = line if section.tables else f"{section.title}: {line}"
            _print_line(console, text, "yellow" if section.warning else "")


def _print_line(console: Terminal, text: str, style: str = "") -> None:
    console.print(Text(printable(text), style=style), highlight=False, soft_wrap=True)


class _Grid:
    """A table as text. Cells are shown as they are: nothing in them is markup."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        table = self._table
        filled = [
            place for place in range(len(table.columns)) if any(one.text for one in table.column(place))
        ]
        block = _Block(table.choose(filled))
        if not block.fits(width):
            block = _Block(table.choose(place for place in filled if not table.columns[place].detail))
        if table.caption:
            yield Text(printable(table.caption), style="italic")
        for number, places in enumerate(block.parts(width)):
            if number:
                yield ""
            yield block.grid(places, width)
        if left_out := block.left_out:
            yield Text(f"and {left_out:,} more rows", style="dim")
        for note, number in block.notes.items():
            yield Text(f"({number}) {note}", style="dim")
        for note in table.all_notes:
            yield Text(printable(note), style="dim")


class _Block:
    """The texts of a table, and how they share a width."""

    def __init__(self, table: Table) -> None:
        self.notes: dict[str, int] = {}
        """The notes on cells, with the numbers that the cells have."""
        self.left_out = max(0, len(table.rows) - FOLDED_ROWS) if table.folded else 0
        """How many rows are not shown."""
        shown = table.rows[: len(table.rows) - self.left_out]
        self._heads = [printable(column.full_name) for column in table.columns]
        self._rows = [[self._text(cell) for cell in row.cells] for row in shown]
        self._styles = [row.style for row in shown]
        self._names = table.heads
        self._right = [column.number and place >= table.heads for place, column in enumerate(table.columns)]

    def _text(self, cell: Cell) -> str:
        text = printable(f"{cell.text} [{cell.printed}]" if cell.printed else cell.text)
        if not cell.note:
            return text
        number = self.notes.setdefault(printable(cell.note), len(self.notes) + 1)
        return f"{text} ({number})"

    def fits(self, width: int) -> bool:
        """Whether all columns stand beside each other, and no cell below the heads is folded."""
        places = range(len(self._heads))
        return _taken([max(self._wide(place), self._least(place)) for place in places]) <= width

    def parts(self, width: int) -> Iterator[Sequence[int]]:
        """The columns of each table that it takes, the names in all of them."""
        names = list(range(self._names))
        block, left = list(names), width - _taken([self._least(one) for one in names])
        for column in range(self._names, len(self._heads)):
            wanted = self._least(column) + GAP
            if wanted > left and len(block) > len(names):
                yield block
                block, left = list(names), width - _taken([self._least(one) for one in names])
            block.append(column)
            left -= wanted
        yield block

    def grid(self, columns: Sequence[int], width: int) -> RichTable:
        """Some of the columns."""
        grid = RichTable(box=None, pad_edge=False, padding=(0, GAP // 2), header_style=HEAD_STYLE)
        widths = self._widths(columns, width)
        for column, wide in zip(columns, widths, strict=True):
            grid.add_column(
                Text(self._heads[column]),
                justify="right" if self._right[column] else "left",
                width=wide,
                overflow="fold",
            )
        for row, style in zip(self._rows, self._styles, strict=True):
            cells = (_folded(row[column], wide) for column, wide in zip(columns, widths, strict=True))
            grid.add_row(*map(Text, cells), style=style)
        return grid

    def _widths(self, columns: Sequence[int], width: int) -> Sequence[int]:
        """As wide as heads and cells are; while that is too wide, the one with most to give gets narrower.

        First heads are folded, then cells at their spaces, then the longest words.
        """
        least = [self._least(column) for column in columns]
        cells = [max(self._wide(column), low) for column, low in zip(columns, least, strict=True)]
        widths = [
            max(wide, cell_len(self._heads[column])) for column, wide in zip(columns, cells, strict=True)
        ]
        for floors in (cells, least, [1] * len(columns)):
            while _taken(widths) > width:
                slack = [wide - floor for wide, floor in zip(widths, floors, strict=True)]
                if max(slack) <= 0:
                    break
                widths[slack.index(max(slack))] -= 1
        return widths

    def _wide(self, column: int) -> int:
        """The longest line of the cells of a column."""
        return max((cell_len(line) for row in self._rows for line in row[column].splitlines()), default=0)

    def _least(self, column: int) -> int:
        """The longest word of a column."""
        return max(cell_len(word) for cell in self._column(column) for word in [*_WORD.findall(cell), ""])

    def _column(self, column: int) -> Sequence[str]:
        return [self._heads[column], *(row[column] for row in self._rows)]


def _folded(text: str, width: int) -> str:
    """A text in lines of a width, where its words have room."""
    lines: list[str] = []
    for line in text.splitlines():
        kept = ""
        for word in _WORD.findall(line):
            longer = f"{kept} {word}" if kept else word
            if kept and cell_len(longer) > width:
                lines.append(kept)
                longer = word
            kept = longer
        lines.append(kept)
    return "\n".join(lines)


def _taken(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
