"""Tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import ceil

from dramaturg.datasets.spreadsheet import csv_record
from dramaturg.tables.model import ABSENT, Cell, Table

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

_COLUMNS = 5
"""The most columns of a table that has the width of a column of a page."""
_LINE = 105
"""The letters of a line that is as wide as a page. A table of longer lines is split."""
_PAGE = 42
"""The lines of a page. A table of more is continued on the next one."""
_HEAD_LINES = 4
"""The lines that heads, rules and the space below take."""
_LONG = 50
"""The most letters of a text on one line."""
_FITTED = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown, with its caption and notes."""
    table = table.choose(range(len(table.columns)))
    heads = [_markdown_cell(column.full_name) for column in table.columns]
    rules = [
        "---" if index < table.heads or not column.number else "---:"
        for index, column in enumerate(table.columns)
    ]
    lines = [f"### {table.caption}", "", _line(heads), _line(rules)]
    lines += [_line(_markdown_cell(_text(cell)) for cell in row.cells) for row in table.rows]
    for note in table.all_notes:
        lines += ["", note]
    return "\n".join(lines) + "\n"


def csv(table: Table) -> str:
    """The table as CSV: figures in full precision.

    The ends of intervals, the numbers of judged items and of all items, and printed numbers have columns of
    their own, where there are any.
    """
    heads: list[str] = []
    rows: list[list[str | float | None]] = [[] for _ in table.rows]
    for place, column in enumerate(table.columns):
        cells = table.column(place)
        for suffix, values in _csv_columns(cells):
            heads.append(f"{column.full_name}{suffix}")
            for row, value in zip(rows, values, strict=True):
                row.append(value)
    return "".join([csv_record(heads), *map(csv_record, rows)])


def _csv_columns(cells: Sequence[Cell]) -> Iterator[tuple[str, Sequence[str | float | None]]]:
    """The ends of the heads and the values of the columns that a column takes."""
    yield "", [_csv_value(cell) for cell in cells]
    for suffix, values in (
        (" (lower)", [cell.bounds and cell.bounds[0] for cell in cells]),
        (" (upper)", [cell.bounds and cell.bounds[1] for cell in cells]),
        (" (judged)", [cell.judged for cell in cells]),
        (" (of)", [cell.total for cell in cells]),
        (" (paper)", [cell.printed for cell in cells]),
    ):
        if any(value not in {None, ""} for value in values):
            yield suffix, values


def _csv_value(cell: Cell) -> str | float | None:
    if cell.value is not None:
        return cell.value
    return None if cell.text == ABSENT else cell.text


def latex(table: Table) -> str:
    """The table in LaTeX, with the packages booktabs and graphicx.

    A table of many columns takes the whole width of a page (``table*``). One of more columns than fit there
    is split: parts with the columns of names stand below one another. Long texts are paragraphs that share
    the rest of the line. A part that is still too wide is made smaller. What is higher than a page is
    continued in further tables of the same number.
    """
    table = table.choose(range(len(table.columns)))
    wide = len(table.columns) > _COLUMNS or any(width > _LONG for width in _widths(table))
    environment = "table*" if wide else "table"
    caption = " ".join((f"{table.caption.rstrip('.')}.", *table.all_notes))
    room = _PAGE - ceil(len(caption) / (_LINE if wide else _LINE // 2))
    lines = []
    for page, parts in enumerate(_pages(_parts(table), room)):
        lines += [rf"\begin{{{environment}}}", r"\centering\small"]
        for index, part in enumerate(parts):
            lines += [r"\par\medskip"] if index else []
            lines += _tabular(part)
        if page:
            lines += [
                r"\addtocounter{table}{-1}",
                rf"\caption{{{_escape_latex(table.caption)} (continued).}}",
            ]
        else:
            lines += [rf"\caption{{{_escape_latex(caption)}}}", rf"\label{{tab:{table.name}}}"]
        lines.append(rf"\end{{{environment}}}")
    return "\n".join(lines) + "\n"


def _pages(parts: Sequence[Table], room: int) -> Iterator[Sequence[Table]]:
    """The parts that stand on each page, cut between rows where one does not fit.

    Args:
        parts: The parts.
        room: The lines of a page without the caption.
    """
    page: list[Table] = []
    left = room
    for part in parts:
        rows = list(zip(part.rows, _heights(part), strict=True))
        while rows:
            taken, needed = 0, _HEAD_LINES
            for _, height in rows:
                if taken and needed + height > room:
                    break
                taken, needed = taken + 1, needed + height
            fitting = part.choose(range(len(part.columns)), intervals=False)
            fitting.rows, rows = [row for row, _ in rows[:taken]], rows[taken:]
            if page and needed > left:
                yield page
                page, left = [], room
            page.append(fitting)
            left -= needed
    yield page or list(parts)


def _heights(part: Table) -> Sequence[int]:
    """The lines that each row takes: those of its longest paragraph."""
    long = _long(part)
    width = _paragraph(part, long) * _LINE
    return [max([1, *(ceil(len(_text(row.cells[place])) / width) for place in long)]) for row in part.rows]


def _parts(table: Table) -> Sequence[Table]:
    """The parts of a table whose lines fit a page, each with the columns of names."""
    # Long texts are paragraphs of at least this width.
    widths = [width if width <= _LONG else _LONG // 2 for width in _widths(table)]
    parts: list[list[int]] = [[]]
    names = width = sum(widths[: table.heads])
    for place in range(table.heads, len(table.columns)):
        if parts[-1] and width + widths[place] > _LINE:
            parts.append([])
            width = names
        parts[-1].append(place)
        width += widths[place]
    return [table.choose([*range(table.heads), *part], intervals=False) for part in parts]


def _widths(table: Table) -> Sequence[int]:
    """The letters of the longest line of each column, with the space between columns."""
    return [
        2 + max(len(column.name), *(len(_text(cell)) for cell in table.column(place)), 0)
        for place, column in enumerate(table.columns)
    ]


def _form(table: Table) -> str:
    """The form of each column: long texts are paragraphs, other words are left, figures right."""
    long = _long(table)
    share = _paragraph(table, long)
    return "".join(
        rf"p{{{share:.2f}\linewidth}}" if place in long else "l" if _is_text(table, place) else "r"
        for place in range(len(table.columns))
    )


def _long(table: Table) -> Sequence[int]:
    """The columns of long texts."""
    return [place for place, width in enumerate(_widths(table)) if width > _LONG and _is_text(table, place)]


def _paragraph(table: Table, long: Sequence[int]) -> float:
    """The share of the line that each column of long texts has."""
    rest = _LINE - sum(width for place, width in enumerate(_widths(table)) if place not in long)
    return max(rest / _LINE, 0.5) / max(len(long), 1)


def _tabular(table: Table) -> Sequence[str]:
    form = _form(table)
    lines = [_FITTED, rf"\begin{{tabular}}{{{form}}}", r"\toprule"]
    if any(column.group for column in table.columns):
        lines += _latex_groups(table)
    lines += [_latex_line(column.name for column in table.columns), r"\midrule"]
    for index, row in enumerate(table.rows):
        if row.ruled and index:
            lines.append(r"\midrule")
        lines.append(_latex_line(map(_text, row.cells)))
    return [*lines, r"\bottomrule", r"\end{tabular}}"]


def _is_text(table: Table, place: int) -> bool:
    """Whether a column has names or words, which are aligned to the left."""
    if place < table.heads or not table.columns[place].number:
        return True
    cells = [cell for cell in table.column(place) if cell.text and cell.text != ABSENT]
    return bool(cells) and all(cell.value is None for cell in cells) and not any(map(_is_figure, cells))


def _is_figure(cell: Cell) -> bool:
    return cell.text[:1].isdecimal() or bool(cell.printed)


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
