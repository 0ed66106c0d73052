"""Chart geometry: positions and sizes of SVG elements. The template draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dramaturg.report.tokens import light
from dramaturg.tables.model import Cell, Point, PointMap, Table

HEAT_STEPS = 10
"""The strongest of the colours of a cell; the weakest is 0."""
LEAST_HEAT_SPAN = 0.2
"""The least part of a scale over which the colours of a table spread: small differences look small."""

FULL_HEAT = 30
"""The number of judged items from which a colour has its full strength."""

_LOW, _HIGH, _PAPER = (bytes.fromhex(light(name)[1:]) for name in ("low", "high", "paper"))


@dataclass(frozen=True)
class Drawn:
    """A figure and its interval as positions in [0, 100]."""

    mean: float
    lower: float | None
    upper: float | None
    ends: tuple[float, float] | None = None
    """The figure with every abstention at either end of the scale. None: there are none."""
    zero: float | None = None
    """The position of 0. None: it is not within the scale."""


def drawn(cell: Cell) -> Drawn | None:
    """A figure on its scale. None: there is none."""
    if cell.value is None or cell.scale is None or cell.scale[1] <= cell.scale[0]:
        return None
    low, high = cell.scale

    def position(value: float) -> float:
        return 100 * min(1.0, max(0.0, (value - low) / (high - low)))

    lower, upper = map(position, cell.bounds) if cell.bounds else (None, None)
    ends = (position(cell.extremes[0]), position(cell.extremes[1])) if cell.extremes else None
    return Drawn(position(cell.value), lower, upper, ends, position(0) if low < 0 < high else None)


def shown_columns(table: Table) -> tuple[Sequence[int], Sequence[int]]:
    """The columns of the table, and those of its details. None of details: nothing is folded."""
    places = range(len(table.columns))
    folded = [place for place in places if table.columns[place].folded]
    shown = [place for place in places if place not in folded]
    return shown, [*range(table.heads), *folded] if folded else []


def bar(cell: Cell, table: Table, place: int) -> Drawn:
    """A count relative to the largest of its column."""
    largest = max(one.value or 0 for one in table.column(place)) or 1
    length = 100 * (cell.value or 0) / largest
    return Drawn(length, 0, length)


def heat_range(table: Table) -> tuple[float, float]:
    """The places that have the first colour and the last one.

    The colours spread from the least to the largest place, over at least ``LEAST_HEAT_SPAN``.
    """
    places = [one.heat for row in table.rows for one in row.cells if one.heat is not None]
    low, high = min(places, default=0.0), max(places, default=1.0)
    span = max(high - low, LEAST_HEAT_SPAN)
    start = min(max(0.0, (low + high - span) / 2), 1.0 - span)
    return start, start + span


def shade(cell: Cell, ends: tuple[float, float]) -> int:
    """The colour of a cell with a place on its scale, from 0 to ``HEAT_STEPS``.

    Args:
        cell: The cell.
        ends: See ``heat_range``.
    """
    start, end = ends
    return round(HEAT_STEPS * min(1.0, max(0.0, ((cell.heat or 0.0) - start) / (end - start))))


def strength(cell: Cell) -> int:
    """How strong the colour of a cell is, from 0 where few items are judged to 3.

    It is 3 where ``FULL_HEAT`` items or more are judged, or their number is not known.
    """
    share = 1.0 if cell.judged is None else min(1.0, cell.judged / FULL_HEAT)
    return int(3 * share)


def has_few(table: Table) -> bool:
    """Whether a colour of a table rests on so few items that it is paler."""
    return any(one.heat is not None and strength(one) < 3 for row in table.rows for one in row.cells)


def colour(cell: Cell, ends: tuple[float, float]) -> str:
    """The colour of a cell for a file, in the light theme. No place on a scale: that of the paper."""
    if cell.heat is None:
        return light("paper")
    part = shade(cell, ends) / HEAT_STEPS
    strong = (1 + strength(cell)) / 4
    mixed = (
        round(paper + strong * (low + part * (high - low) - paper))
        for low, high, paper in zip(_LOW, _HIGH, _PAPER, strict=True)
    )
    return "#" + "".join(f"{one:02x}" for one in mixed)


def heat_ends(table: Table) -> Sequence[Cell]:
    """The cells with the least and the largest place, for the legend. Empty: all places are equal."""
    cells = [one for row in table.rows for one in row.cells if one.heat is not None]
    low, high = (find(cells, key=lambda one: one.heat or 0.0, default=None) for find in (min, max))
    return () if low is None or high is None or low.heat == high.heat else (low, high)


def has_extremes(table: Table) -> bool:
    """Whether the bounds of a figure under its abstentions are drawn."""
    return any(cell.extremes for row in table.rows for cell in row.cells)


def describe(cell: Cell) -> str:
    """What a figure rests on, e.g. "12 of 14 judged, 95 % interval 50 to 75 %"."""
    parts = [
        f"{cell.judged:,} of {cell.total:,} judged" if cell.judged is not None and cell.total else "",
        f"95 % interval {cell.ends}" if cell.ends else "",
        cell.withheld,
        cell.note,
    ]
    return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class DrawnTable:
    """A chart of a table: an interval of each row, or a colour of each cell."""

    caption: str
    labels: Sequence[str]
    """The names of the rows."""
    heads: Sequence[str]
    """The names of the coloured columns. Empty: the chart is one of intervals."""
    cells: Sequence[Sequence[Cell]]
    """The cells of each row that are drawn: one with an interval, or those with colours."""
    ends: tuple[str, str]
    """The ends of the axis in words."""


def drawn_table(table: Table) -> DrawnTable | None:
    """The chart of a table. None: it has neither intervals on one scale nor several coloured columns."""
    names = [place for place in range(table.heads) if not table.columns[place].number] or [0]
    labels = [", ".join(row.cells[place].text for place in names) for row in table.rows]
    figures = range(table.heads, len(table.columns))
    heated = [place for place in figures if any(cell.heat is not None for cell in table.column(place))]
    if len(heated) > 1:
        cells = [[row.cells[place] for place in heated] for row in table.rows]
        return DrawnTable(
            table.caption, labels, [table.columns[place].name for place in heated], cells, ("", "")
        )
    for place in figures:
        scales = {cell.scale for cell in table.column(place) if cell.scale is not None}
        if table.has_intervals(place) and len(scales) == 1:
            first, _, last = table.columns[place].interval.rpartition(" to ")
            ends = (first, last) if first else (last.replace("±", "−"), last.replace("±", "+"))
            return DrawnTable(table.caption, labels, (), [[row.cells[place]] for row in table.rows], ends)
    return None


@dataclass(frozen=True)
class Mark:
    """A point as it is drawn."""

    number: int
    """The number of the point."""
    name: str
    x: float
    y: float
    radius: float
    group: int
    """The number of its group."""
    label: tuple[float, float, str] | None
    """The place of the name and its anchor: "start" or "end". None: there is no room for it."""


@dataclass(frozen=True)
class DrawnMap:
    """A map as it is drawn."""

    caption: str
    groups: Sequence[str]
    """The groups by number."""
    marks: Sequence[Mark] = ()
    """The points with the largest weight last, on top of the others."""
    joints: Sequence[tuple[float, float, float, float]] = ()
    """Lines from points of one number to their middle, as x1, y1, x2, y2."""
    width: float = 720.0
    height: float = 400.0


_MARGIN_X, _MARGIN_Y = 110.0, 22.0
_LEAST_RADIUS, _MOST_RADIUS = 4.0, 11.0
_LETTER, _LINE = 6.4, 14.0
_NAME_LENGTH = 28


def drawn_map(one: PointMap) -> DrawnMap:
    """Places points and as many of their names as do not overlap, those of the largest weight first."""
    points, whole = one.points, DrawnMap(one.caption, one.groups)
    left, right = min(point.x for point in points), max(point.x for point in points)
    low, high = min(point.y for point in points), max(point.y for point in points)
    inner = whole.width - 2 * _MARGIN_X, whole.height - 2 * _MARGIN_Y
    scale = min(inner[0] / max(right - left, 1e-6), inner[1] / max(high - low, 1e-6))

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            whole.width / 2 + scale * (x - (left + right) / 2),
            whole.height / 2 - scale * (y - (low + high) / 2),
        )

    heaviest = max(point.weight for point in points) or 1.0
    radii = [
        _LEAST_RADIUS + (_MOST_RADIUS - _LEAST_RADIUS) * (point.weight / heaviest) ** 0.5 for point in points
    ]
    places = [place(point.x, point.y) for point in points]
    order = sorted(range(len(points)), key=lambda index: -points[index].weight)
    taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(places, radii, strict=True)]
    labels = {index: _label(points[index].name, places[index], radii[index], taken, whole) for index in order}
    marks = [
        Mark(
            index,
            points[index].name,
            *places[index],
            radii[index],
            whole.groups.index(points[index].group),
            labels[index],
        )
        for index in reversed(order)
    ]
    return DrawnMap(one.caption, whole.groups, marks, _joints(points, places))


def _label(
    name: str,
    at: tuple[float, float],
    radius: float,
    taken: list[tuple[float, float, float, float]],
    whole: DrawnMap,
) -> tuple[float, float, str] | None:
    length = _LETTER * len(shortened(name))
    for anchor, x in (("start", at[0] + radius + 3), ("end", at[0] - radius - 3)):
        left = x if anchor == "start" else x - length
        for shift in (0.0, -_LINE * 0.8, _LINE * 0.8):
            box = (left, at[1] + shift - _LINE / 2, left + length, at[1] + shift + _LINE / 2)
            outside = box[0] < 0 or box[2] > whole.width or box[1] < 0 or box[3] > whole.height
            if not outside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                return x, at[1] + shift + 4, anchor
    return None


def shortened(name: str, length: int = _NAME_LENGTH) -> str:
    """A name as it is written beside a mark."""
    return name if len(name) <= length else f"{name[: length - 1]}…"


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _joints(
    points: Sequence[Point], places: Sequence[tuple[float, float]]
) -> Sequence[tuple[float, float, float, float]]:
    joined: dict[int, list[tuple[float, float]]] = {}
    for point, at in zip(points, places, strict=True):
        if point.joined is not None:
            joined.setdefault(point.joined, []).append(at)
    lines = []
    for members in joined.values():
        middle = tuple(sum(axis) / len(members) for axis in zip(*members, strict=True))
        lines += [(x, y, middle[0], middle[1]) for x, y in members if len(members) > 1]
    return lines


FILTERS: Sequence[Callable[..., object]] = (
    bar,
    colour,
    describe,
    drawn,
    drawn_map,
    drawn_table,
    has_extremes,
    has_few,
    heat_ends,
    heat_range,
    shade,
    shortened,
    shown_columns,
    strength,
)
"""The functions that templates use, by their names."""
