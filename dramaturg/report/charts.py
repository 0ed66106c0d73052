"""Charts as geometry: where everything stands in an SVG. The template draws it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

LONGEST_LABEL = 28
"""The most characters of a label; the whole stands in its title."""

_CELL_WIDTH, _CELL_HEIGHT = 92, 30
_CHARACTER = 7.2  # of the small font, about
_SLANT = 0.62
_LIGHT, _FULL = 0.56, 0.7  # where dark and light ink are read equally well, by night and by day


@dataclass(frozen=True)
class Label:
    """A text at a place."""

    x: float
    y: float
    text: str
    whole: str


@dataclass(frozen=True)
class Cell:
    """One cell of a heat map."""

    x: float
    y: float
    share: float | None
    """How full its colour is, in [0, 1]. None: it has none."""
    text: str
    title: str

    @property
    def ink(self) -> str:
        """Which ink is read best on it: the names of the style sheet's classes."""
        if self.share is None or self.share <= _LIGHT:
            return "low"
        return "high" if self.share > _FULL else "mid"


@dataclass(frozen=True)
class HeatMap:
    """Rows x columns of values."""

    width: float
    height: float
    rows: Sequence[Label]
    columns: Sequence[Label]
    cells: Sequence[Cell]
    cell_width: float = _CELL_WIDTH - 2
    cell_height: float = _CELL_HEIGHT - 2


@dataclass(frozen=True)
class Value:
    """What a cell says."""

    value: float | None
    judged: int
    judgements: int


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Mapping[tuple[str, str], Value],
    scale: tuple[float, float] = (0.0, 1.0),
    uncoloured: Collection[str] = (),
) -> HeatMap:
    """A heat map of named rows and columns.

    Args:
        rows: The names, from the top.
        columns: The names, from the left.
        values: By (row, column); one that is not there stays blank.
        scale: The value of an empty and of a full colour.
        uncoloured: Rows on another scale, whose colours would say nothing: they have their values only.
    """
    left = 20 + _CHARACTER * max((len(_short(name)) for name in rows), default=0)
    longest = max((len(_short(name)) for name in columns), default=0)
    top = 14 + _CHARACTER * _SLANT * longest
    cells = []
    for j, row in enumerate(rows):
        for i, column in enumerate(columns):
            if (value := values.get((row, column))) is not None:
                place = left + i * _CELL_WIDTH, top + j * _CELL_HEIGHT
                cells.append(_cell(value, *place, row, column, None if row in uncoloured else scale))
    return HeatMap(
        width=left + _CELL_WIDTH * len(columns) + _CHARACTER * 0.8 * longest,
        height=top + _CELL_HEIGHT * len(rows) + 4,
        rows=[
            Label(left - 8, top + (j + 0.5) * _CELL_HEIGHT, _short(name), name) for j, name in enumerate(rows)
        ],
        columns=[
            Label(left + (i + 0.5) * _CELL_WIDTH, top - 6, _short(name), name)
            for i, name in enumerate(columns)
        ],
        cells=cells,
    )


def _cell(value: Value, x: float, y: float, row: str, column: str, scale: tuple[float, float] | None) -> Cell:
    title = f"{row}, {column}: {value.judged} of {value.judgements} judged"
    if value.value is None:
        return Cell(x, y, None, "–", title)
    share = None
    if scale is not None:
        low, high = scale
        share = min(1.0, max(0.0, (value.value - low) / (high - low))) if high > low else 0.5
    return Cell(x, y, share, f"{value.value:.2f}", f"{title}, mean {value.value:.4f}")


@dataclass(frozen=True)
class Whisker:
    """A mean with its interval on a scale of 0 to 100."""

    mean: float
    lower: float | None
    upper: float | None


def whisker(
    mean: float | None, lower: float | None, upper: float | None, scale: tuple[float, float]
) -> Whisker | None:
    """Where a mean and its interval stand on a scale. None: there is no mean."""
    low, high = scale
    if mean is None or high <= low:
        return None

    def place(value: float) -> float:
        return 100 * min(1.0, max(0.0, (value - low) / (high - low)))

    if lower is None or upper is None:
        return Whisker(place(mean), None, None)
    return Whisker(place(mean), place(lower), place(upper))


@dataclass(frozen=True)
class Bar:
    """A count beside others."""

    name: str
    count: int
    length: float
    """In [0, 100], of the longest."""
    share: float
    """Of all, in [0, 1]."""


def bars(counts: Mapping[str, int], total: int) -> list[Bar]:
    """Counts as bars, the longest first."""
    longest = max(counts.values(), default=0)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [Bar(name, count, 100 * count / longest, count / total) for name, count in ordered if count]


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"
