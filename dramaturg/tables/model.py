"""Sections of tables and charts, which every renderer shows, and their cells.

The terminal, the report, Markdown, CSV, LaTeX and plots render them. Figures are data: a cell has its value,
its interval, and how many items it rests on. A renderer decides what it shows of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10
from typing import NamedTuple
from urllib.parse import urlencode

from google.protobuf.message import Message

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.results.groups import Grouped
from dramaturg.results.quantities import money

ABSENT = "–"
"""The text of a figure that does not exist."""
INTERVAL = "95 % interval"
"""The head of the intervals of a column."""
PRINTED_NOTE = "In brackets: the number that the paper prints."
"""The note of a table with printed numbers."""

Scale = tuple[float, float]
"""The lowest and the highest value of a measure."""

_NAME_LENGTH = 80


@dataclass(frozen=True)
class Cell:
    """A cell: a text, or a figure with its text."""

    text: str
    value: float | None = None
    """The figure in full precision. None: the cell has none."""
    bounds: tuple[float, float] | None = None
    """The ends of its 95 % interval. None: it has none."""
    ends: str = ""
    """The ends as text, e.g. "50 to 75 %"."""
    scale: Scale | None = None
    """The scale on which the figure and its interval are drawn. None: they are not drawn."""
    extremes: tuple[float, float] | None = None
    """The figure with every abstention at one end of the scale, and at the other. None: that is not known."""
    judged: int | None = None
    """How many items the figure rests on. None: that is not known."""
    total: int | None = None
    """How many items there are, with those that were not judged."""
    note: str = ""
    """What else is to be said of the figure, e.g. why it is undefined."""
    withheld: str = ""
    """Why it has no interval. Empty: it has one, or that is not known."""
    heat: float | None = None
    """The place on its scale, in [0, 1], which gives the colour. None: it has none."""
    link: str = ""
    """The fragment of a filter of samples. Empty: none."""
    printed: str = ""
    """The number that a paper prints in this place. Empty: none."""


@dataclass(frozen=True)
class Column:
    """A column."""

    name: str
    """The head."""
    group: str = ""
    """The head above it that adjacent columns share. Empty: none."""
    number: bool = True
    """Whether its cells are figures, which are aligned to the right."""
    interval: str = ""
    """The scale of its intervals in words, e.g. "0 to 100 %". Empty: none stand beside its figures."""
    bars: bool = False
    """Whether its figures are counts of one whole, which bars compare."""
    detail: bool = False
    """Whether a renderer with little room leaves it out."""
    folded: bool = False
    """Whether a page shows it only to who opens the details of the table."""

    @property
    def full_name(self) -> str:
        """Both heads, e.g. "Easy: gpt-4o"."""
        return f"{self.group}: {self.name}" if self.group and self.name else self.name or self.group


class Row(NamedTuple):
    """A row."""

    cells: Sequence[Cell]
    """A cell for each column."""
    ruled: bool = False
    """Whether a rule is above it."""
    style: str = ""
    """The colour of its text where colours are shown, e.g. "red". Empty: none."""


class Table:
    """A table. Columns of names come first.

    Args:
        caption: What the table shows.
        columns: The columns.
        rows: The cells of each row.
        heads: How many columns name a row. None: those before the first column of figures, at least 1.
        name: The name of its files, e.g. "table-3". Empty: made of the caption.
        notes: Sentences below the table.
        printed_note: The note on printed numbers, which stand in brackets.
        folded: The label under which the table is folded. Empty: it is open.
    """

    def __init__(
        self,
        caption: str,
        columns: Sequence[Column],
        rows: Iterable[Row | Sequence[Cell | str]] = (),
        *,
        heads: int | None = None,
        name: str = "",
        notes: Sequence[str] = (),
        printed_note: str = PRINTED_NOTE,
        folded: str = "",
    ) -> None:
        self.caption = caption
        self.columns = columns
        numbers = (place for place, column in enumerate(columns) if column.number)
        self.heads = max(1, next(numbers, len(columns))) if heads is None else heads
        self.name = name or file_name(caption)
        self.notes = notes
        self.printed_note = printed_note
        self.folded = folded
        self.rows: list[Row] = []
        for row in rows:
            if isinstance(row, Row):
                self.add_row(*row.cells, ruled=row.ruled, style=row.style)
            else:
                self.add_row(*row)

    def add_row(self, *cells: Cell | str, ruled: bool = False, style: str = "") -> None:
        """Adds a row, with a cell for each column."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{self.name}: {len(cells)} cells in {len(self.columns)} columns")
        made = [Cell(cell) if isinstance(cell, str) else cell for cell in cells]
        self.rows.append(Row(made, ruled, style))

    @property
    def all_notes(self) -> Sequence[str]:
        """The notes, with that on printed numbers where there are any."""
        printed = any(cell.printed for row in self.rows for cell in row.cells)
        return (*([self.printed_note] if printed else []), *self.notes)

    def column(self, place: int) -> Sequence[Cell]:
        """The cells of a column."""
        return [row.cells[place] for row in self.rows]

    def has_intervals(self, place: int) -> bool:
        """Whether intervals stand beside the figures of a column."""
        return bool(self.columns[place].interval) and any(
            cell.bounds or cell.withheld for cell in self.column(place)
        )

    @property
    def has_heat(self) -> bool:
        """Whether it is a heat map: several columns have colours."""
        heated = (
            any(cell.heat is not None for cell in self.column(place)) for place in range(len(self.columns))
        )
        return sum(heated) > 1

    def choose(self, places: Iterable[int], *, intervals: bool = True) -> Table:
        """The table with some of its columns, and with the intervals of these in columns of text."""
        columns: list[Column] = []
        picked: list[Callable[[Row], Cell]] = []
        heads = 0
        for place in places:
            heads += place < self.heads
            column = self.columns[place]
            columns.append(column)
            picked.append(lambda row, place=place: row.cells[place])  # type: ignore[misc]
            if intervals and self.has_intervals(place):
                columns.append(Column(INTERVAL, column.group, detail=column.detail))
                picked.append(lambda row, place=place: _ends(row.cells[place]))  # type: ignore[misc]
        rows = [Row([pick(row) for pick in picked], row.ruled, row.style) for row in self.rows]
        return Table(
            self.caption,
            columns,
            rows,
            heads=heads,
            name=self.name,
            notes=self.notes,
            printed_note=self.printed_note,
            folded=self.folded,
        )


def _ends(cell: Cell) -> Cell:
    return Cell(cell.ends or ABSENT, note=cell.withheld)


class Point(NamedTuple):
    """A named point of a map."""

    name: str
    x: float
    y: float
    group: str
    """What its mark stands for."""
    weight: float
    """At least 0; its mark grows with it."""
    joined: int | None
    """Points of one number are joined. None: the point is not."""


@dataclass(frozen=True)
class PointMap:
    """Named points on a plane with equal scales of both axes; at least one."""

    caption: str
    points: Sequence[Point]

    @property
    def groups(self) -> Sequence[str]:
        """The groups of the points, each once."""
        return list(dict.fromkeys(point.group for point in self.points))


@dataclass(frozen=True)
class Section:
    """Tables with a heading."""

    title: str
    tables: Sequence[Table] = ()
    note: str = ""
    lines: Sequence[str] = field(default=())
    """Sentences below the tables."""
    maps: Sequence[PointMap] = ()
    """Maps above the tables, which have the same points."""
    detail: bool = False
    """Whether a renderer with little room leaves it out."""
    warning: bool = False
    """Whether it says what limits the figures."""


def columns(*names: str, texts: Iterable[str] = (), figures: Iterable[str | Column] = ()) -> list[Column]:
    """Columns of names, then of other words, then of figures."""
    return [
        *(Column(name, number=False) for name in (*names, *texts)),
        *(Column(one) if isinstance(one, str) else one for one in figures),
    ]


def file_name(caption: str) -> str:
    """A caption as the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", caption.lower()).strip("-")[:_NAME_LENGTH]


def named(tables: Iterable[Table]) -> Iterator[Table]:
    """The tables, each with a name of its own."""
    known: Counter[str] = Counter()
    for table in tables:
        known[table.name] += 1
        if known[table.name] > 1:
            table.name = f"{table.name}-{known[table.name]}"
        yield table


def matrix(
    caption: str,
    head: Sequence[str],
    rows: Sequence[tuple[Sequence[Cell], str]],
    across: Sequence[str],
    cell: Callable[[str, str], Cell | None],
) -> Table:
    """A table with a cell for each row and each name across; cells that do not exist are blank.

    Args:
        caption: The caption.
        head: The names of the header columns.
        rows: The header cells of each row, and its key.
        across: The names of the other columns.
        cell: Makes the cell of a row's key and a column.
    """
    made = [[*heads, *(cell(key, name) or Cell(ABSENT) for name in across)] for heads, key in rows]
    shown = [name or "(unnamed)" for name in across]
    return Table(caption, columns(*head, figures=shown), made, heads=len(head))


SHARE: Scale = (0.0, 1.0)
SHARES = "0 to 100 %"
"""The scale of intervals of shares in words."""
SMALLEST_P = 0.001
"""A smaller p-value is shown as less than it."""

_ROUNDING = 1e-9


def samples_link(tags: Mapping[str, str] | None = None, /, **filters: str) -> str:
    """The fragment that shows the samples of a cell.

    Args:
        tags: The values of tags.
        filters: Other filters of the page: model, measure, outcome ("pass", "fail", "abstain" or "failed")
            and reason.
    """
    parts = {**filters, **{f"tag.{name}": value for name, value in (tags or {}).items()}}
    return "#" + urlencode(parts) if parts else "#samples"


def count(value: int, link: str = "") -> Cell:
    """A number of things."""
    return Cell(f"{value:,}", value, link=link if value else "")


def percent(value: float | None, digits: int = 0) -> str:
    """A share, e.g. "98 %"; a share that is not all, or not none, is not rounded to 100 % or 0 %."""
    if value is None:
        return ABSENT
    text = f"{100 * value:.{digits}f}"
    if (float(text) in {0.0, 100.0}) and value not in {0.0, 1.0}:
        text = f"{100 * value:.{digits + 1}f}"
    return f"{text} %"


def percent_of(value: float | None) -> str:
    """A share with one digit."""
    return percent(value, 1)


def points(text: str) -> str:
    """A difference of two shares that is formatted as a share, as percentage points, e.g. "0.2 pp"."""
    return f"{text.removesuffix('%')}pp" if text.endswith("%") else text


def p_value(p: float | None) -> str:
    """A p-value with three digits; none is shown as 0."""
    if p is None:
        return ABSENT
    return f"{p:.3f}" if p >= SMALLEST_P else f"<{SMALLEST_P}"


def p_sentence(p: float) -> str:
    """A p-value in a sentence, e.g. "p = 0.012"."""
    return f"p = {p_value(p)}" if p >= SMALLEST_P else f"p < {SMALLEST_P}"


def words(name: str) -> str:
    """The name of a reason or a choice in words, e.g. "timed out"; other texts are as they are."""
    return name.replace("_", " ").lower() if name.isupper() else name


def figure(value: float | None, digits: int = 2) -> str:
    """A figure with a fixed number of digits."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def format_cost(usage: Usage) -> str:
    """The cost; "≥" marks a lower bound, "unknown" a cost without prices."""
    if not usage.HasField("cost_usd"):
        return "unknown" if usage.provider_call_count else "none"
    mark = "≥ " if usage.unpriced_call_count else ""
    return f"{mark}{money(usage.cost_usd)}"


def value_of(found: Estimate) -> float | None:
    """The value of an estimate, or None."""
    return found.value if found.HasField("value") else None


def estimate_cell(
    found: Estimate,
    link: str = "",
    *,
    scale: Scale = SHARE,
    heat: bool = False,
    show: Callable[[float | None], str] = percent_of,
) -> Cell:
    """An estimate with its interval, its coverage, and why it is undefined."""
    value = value_of(found)
    known = found.HasField("lower") and found.HasField("upper")
    return Cell(
        show(value),
        value,
        bounds=(found.lower, found.upper) if known else None,
        ends=ends_of(found.lower, found.upper, show) if known else "",
        scale=scale,
        judged=found.count if found.total else None,
        total=found.total or None,
        withheld=f"no interval: {found.interval_withheld}" if found.interval_withheld else "",
        note=f"undefined: {found.undefined}" if found.undefined else "",
        heat=heat_of(value, scale) if heat else None,
        link=link,
    )


def fitted(scale: Scale, values: Iterable[float]) -> Scale:
    """The part of a scale that has all values, between round numbers. No values: the whole scale."""
    found = list(values)
    if not found:
        return scale
    low, high = min(found), max(found)
    whole = scale[1] - scale[0]
    step = 10.0 ** floor(log10(max(high - low, whole / 100)))
    ends = floor(low / step + _ROUNDING) * step, ceil(high / step - _ROUNDING) * step
    return max(scale[0], min(ends[0], ends[1] - step)), min(scale[1], ends[1])


def ends_of(lower: float, upper: float, show: Callable[[float | None], str]) -> str:
    """The ends of an interval, e.g. "50 to 75 %"."""
    first, last = show(lower), show(upper)
    unit = f" {last.split()[-1]}"
    return f"{first.removesuffix(unit) if last.endswith(unit) else first} to {last}"


def share_cell(value: float | None, judged: int | None = None, total: int | None = None) -> Cell:
    """A share without an interval."""
    return Cell(percent_of(value), value, judged=judged, total=total)


def optional(message: Message, field: str) -> float | None:
    """A figure of a message, or None if it is absent."""
    return float(getattr(message, field)) if message.HasField(field) else None


def heat_of(value: float | None, scale: Scale) -> float | None:
    """The place of a value on a scale, in [0, 1]; None outside of it."""
    low, high = scale
    if value is None or not low <= value <= high or high <= low:
        return None
    return (value - low) / (high - low)


def name_cell(name: str, link: str = "", absent: str = "(unnamed)") -> Cell:
    """A name, or a placeholder for an empty one."""
    return Cell(name or absent, link=link)


def group_name(tags: Mapping[str, str]) -> str:
    """A group, for example "level hard, topic (none)"; "all" without tags."""
    return ", ".join(f"{name} {value or '(none)'}" for name, value in sorted(tags.items())) or "all"


def group_key(tags: Mapping[str, str], names: Sequence[str]) -> str:
    """The values of a group as one key, in the order of the grouping."""
    return "\x1f".join(tags[name] for name in names)


def group_rows(names: Sequence[str], rows: Iterable[Grouped]) -> Sequence[tuple[Sequence[Cell], str]]:
    """The header cells and the key of each group, for ``matrix``."""
    groups = {group_key(one.tags, names): one.tags for one in rows}
    return [(group_cells(names, tags), key) for key, tags in groups.items()]


def group_cells(names: Sequence[str], tags: Mapping[str, str]) -> Sequence[Cell]:
    """The values of a group."""
    return [name_cell(tags[name], absent="(none)") for name in names]
