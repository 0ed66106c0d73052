"""Chart geometry: positions and sizes of SVG elements. The template draws them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

MAX_LABEL_LENGTH = 28
"""Longer labels are shortened; the full name is in the element's title."""

_CELL_WIDTH, _CELL_HEIGHT = 92, 30
_CHARACTER = 7.2  # approximate width in the small font
_SLANT = 0.62
_LIGHT, _FULL = 0.56, 0.7  # shares at which dark and light text have equal contrast, in both themes


@dataclass(frozen=True)
class Label:
    """A positioned text."""

    x: float
    y: float
    text: str
    full_text: str


@dataclass(frozen=True)
class Cell:
    """One cell of a heat map."""

    x: float
    y: float
    share: float | None
    """Colour intensity in [0, 1]. None: no colour."""
    text: str
    title: str

    @property
    def ink(self) -> str:
        """The style sheet's class of the text colour with the best contrast."""
        if self.share is None or self.share <= _LIGHT:
            return "low"
        return "high" if self.share > _FULL else "mid"


@dataclass(frozen=True)
class HeatMap:
    """The geometry of a heat map."""

    width: float
    height: float
    rows: Sequence[Label]
    columns: Sequence[Label]
    cells: Sequence[Cell]
    cell_width: float = _CELL_WIDTH - 2
    cell_height: float = _CELL_HEIGHT - 2


@dataclass(frozen=True)
class Value:
    """The content of a cell: a mean and the counts behind it."""

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
    """Lays out a heat map.

    Args:
        rows: Row names, top to bottom.
        columns: Column names, left to right.
        values: Values by (row, column); missing cells stay blank.
        scale: The values of the lowest and the highest colour intensity.
        uncoloured: Rows on another scale; their cells show values without colour.
    """
    left = 20 + _CHARACTER * max((len(_short(name)) for name in rows), default=0)
    longest = max((len(_short(name)) for name in columns), default=0)
    top = 14 + _CHARACTER * _SLANT * longest
    cells = []
    for j, row in enumerate(rows):
        for i, column in enumerate(columns):
            if (value := values.get((row, column))) is not None:
                position = left + i * _CELL_WIDTH, top + j * _CELL_HEIGHT
                cells.append(_cell(value, *position, row, column, None if row in uncoloured else scale))
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
    """A mean and its interval as positions in [0, 100]."""

    mean: float
    lower: float | None
    upper: float | None


def whisker(
    mean: float | None, lower: float | None, upper: float | None, scale: tuple[float, float]
) -> Whisker | None:
    """Maps a mean and its interval from a scale to [0, 100]. None: there is no mean."""
    low, high = scale
    if mean is None or high <= low:
        return None

    def position(value: float) -> float:
        return 100 * min(1.0, max(0.0, (value - low) / (high - low)))

    if lower is None or upper is None:
        return Whisker(position(mean), None, None)
    return Whisker(position(mean), position(lower), position(upper))


@dataclass(frozen=True)
class Bar:
    """One bar of a bar chart of counts."""

    name: str
    count: int
    length: float
    """In [0, 100], relative to the largest count."""
    share: float
    """Of the total, in [0, 1]."""


def bars(counts: Mapping[str, int], total: int) -> list[Bar]:
    """Bars for the counts, longest first; zero counts are left out."""
    longest = max(counts.values(), default=0)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [Bar(name, count, 100 * count / longest, count / total) for name, count in ordered if count]


def _short(name: str) -> str:
    return name if len(name) <= MAX_LABEL_LENGTH else f"{name[: MAX_LABEL_LENGTH - 1]}…"
