"""Tables that fit the terminal: no name and no figure is ever cut.

Where the terminal is narrow, cells fold at their spaces; columns that do not fit are printed in a
further table below, beside the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from dramaturg.cli.terminal import Terminal, printable

GAP = 2
"""Characters between two columns."""
HEAD_STYLE = "bold cyan"
"""The style of heads, where the terminal has colours."""


class Noted(NamedTuple):
    """A cell with a note, which is printed once below the table."""

    text: str
    """The cell."""
    note: str
    """The note."""


Cell = str | Noted


class Table:
    """A table. Cells are shown as they are: nothing in them is markup. Columns without any are left out.

    Args:
        names: The heads of the columns that say what a row is about.
        texts: The heads of further columns of words.
        figures: The heads of the columns of figures, aligned to the right.
        title: What the table shows.
    """

    def __init__(
        self, *names: str, texts: Sequence[str] = (), figures: Sequence[str] = (), title: str = ""
    ) -> None:
        self._heads = tuple(map(printable, (*names, *texts, *figures)))
        self._names, self._left = len(names), len(names) + len(texts)
        self._title = printable(title)
        self._rows: list[tuple[str, ...]] = []
        self._styles: list[str] = []
        self._notes: dict[str, int] = {}

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return len(self._rows)

    def add_row(self, *cells: Cell, style: str = "") -> None:
        """Adds a row, with a cell for each column."""
        if len(cells) != len(self._heads):
            raise ValueError(f"a row of {len(cells)} cells in a table of {len(self._heads)} columns")
        self._rows.append(tuple(self._text(cell) for cell in cells))
        self._styles.append(style)

    def _text(self, cell: Cell) -> str:
        if isinstance(cell, str):
            return printable(cell)
        number = self._notes.setdefault(printable(cell.note), len(self._notes) + 1)
        return f"{printable(cell.text)} ({number})"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._title:
            yield Text(self._title, style="italic")
        for place, columns in enumerate(self._blocks(options.max_width)):
            if place:
                yield ""
            yield self._grid(columns, options.max_width)
        for note, number in self._notes.items():
            yield Text(f"({number}) {note}", style="dim")

    def _blocks(self, width: int) -> Iterator[Sequence[int]]:
        """The columns of each table that it takes, the names in all of them."""
        names = list(range(self._names))
        block, left = list(names), width - _taken([self._least(one) for one in names])
        for column in range(self._names, len(self._heads)):
            if not any(self._column(column)[1:]):
                continue
            wanted = self._least(column) + GAP
            if wanted > left and len(block) > len(names):
                yield block
                block, left = list(names), width - _taken([self._least(one) for one in names])
            block.append(column)
            left -= wanted
        yield block

    def _grid(self, columns: Sequence[int], width: int) -> Grid:
        grid = Grid(box=None, pad_edge=False, padding=(0, GAP // 2), header_style=HEAD_STYLE)
        for column, wide in zip(columns, self._widths(columns, width), strict=True):
            right = column >= self._left
            grid.add_column(
                Text(self._heads[column]),
                justify="right" if right else "left",
                width=wide,
                overflow="fold",
            )
        for row, style in zip(self._rows, self._styles, strict=True):
            grid.add_row(*(Text(row[column]) for column in columns), style=style)
        return grid

    def _widths(self, columns: Sequence[int], width: int) -> Sequence[int]:
        """As wide as the cells are; while that is too wide, the one with the most to give gets narrower."""
        widths = [
            max(cell_len(line) for cell in self._column(column) for line in [*cell.splitlines(), ""])
            for column in columns
        ]
        least = [self._least(column) for column in columns]
        while _taken(widths) > width:
            slack = [wide - low for wide, low in zip(widths, least, strict=True)]
            if not any(slack):
                # Not even the longest words have room, so they are folded too.
                least = [min(one, 1) for one in widths]
                if widths == least:
                    break
                continue
            widths[slack.index(max(slack))] -= 1
        return widths

    def _least(self, column: int) -> int:
        """The longest word of a column."""
        return max(cell_len(word) for cell in self._column(column) for word in [*cell.split(), ""])

    def _column(self, column: int) -> Sequence[str]:
        return [self._heads[column], *(row[column] for row in self._rows)]


def print_tables(console: Terminal, *shown: Table | str) -> None:
    """Prints tables and lines, with a blank line after each table; tables without rows are left out."""
    for one in shown:
        if isinstance(one, Table):
            if one.row_count:
                console.print(one)
                console.print()
        else:
            console.print(Text(printable(one)), highlight=False, soft_wrap=True)


def _taken(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
