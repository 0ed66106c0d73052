"""Chart geometry: positions and sizes of SVG elements. The template draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Interval:
    """A mean and its interval as positions in [0, 100]."""

    mean: float
    lower: float | None
    upper: float | None
    scale: tuple[float, float]
    """The values at 0 and 100."""

    @property
    def zero(self) -> float | None:
        """The position of 0. None: it is not within the scale."""
        low, high = self.scale
        return 100 * -low / (high - low) if low < 0 < high else None

    def value(self, position: float) -> float:
        """The value at a position."""
        low, high = self.scale
        return low + (high - low) * position / 100


def interval_of(
    mean: float | None, bounds: tuple[float, float] | None, scale: tuple[float, float]
) -> Interval | None:
    """Maps a mean and its interval from a scale to [0, 100]. None: there is no mean."""
    low, high = scale
    if mean is None or high <= low:
        return None

    def position(value: float) -> float:
        return 100 * min(1.0, max(0.0, (value - low) / (high - low)))

    lower, upper = (None, None) if bounds is None else map(position, bounds)
    return Interval(position(mean), lower, upper, scale)


@dataclass(frozen=True)
class Bar:
    """One bar of a bar chart of counts."""

    name: str
    count: int
    length: float
    """In [0, 100], relative to the largest count."""
    share: float
    """Of the total, in [0, 1]."""


def bars(counts: Mapping[str, int], total: int) -> Sequence[Bar]:
    """Bars for the counts, longest first; zero counts are left out."""
    longest = max(counts.values(), default=0)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [
        Bar(name, count, 100 * count / longest, count / max(1, total)) for name, count in ordered if count
    ]


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
class PointMap:
    """Points on a plane with equal scales of both axes."""

    caption: str
    groups: Sequence[str]
    """The groups by number."""
    points: Sequence[Point]
    marks: Sequence[Mark]
    """The points with the largest weight last, on top of the others."""
    joints: Sequence[tuple[float, float, float, float]]
    """Lines from points of one number to their middle, as x1, y1, x2, y2."""
    width: float = 720.0
    height: float = 400.0


_MARGIN_X, _MARGIN_Y = 110.0, 22.0
_LEAST_RADIUS, _MOST_RADIUS = 4.0, 11.0
_LETTER, _LINE = 6.4, 14.0
_NAME_LENGTH = 28


def point_map(caption: str, points: Sequence[Point]) -> PointMap:
    """Places points and as many of their names as do not overlap, those of the largest weight first.

    Args:
        caption: What the map shows.
        points: At least one.
    """
    whole = PointMap(caption, list(dict.fromkeys(point.group for point in points)), points, (), ())
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
    return PointMap(caption, whole.groups, points, marks, _joints(points, places))


def _label(
    name: str,
    at: tuple[float, float],
    radius: float,
    taken: list[tuple[float, float, float, float]],
    whole: PointMap,
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


def shortened(name: str) -> str:
    """A name as it is written beside a mark."""
    return name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…"


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
