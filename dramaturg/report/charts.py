"""Chart geometry: positions and sizes of SVG elements. The template draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A mean and its interval as positions in [0, 100]."""

    mean: float
    lower: float | None
    upper: float | None
    scale: tuple[float, float]
    """The values at 0 and 100."""

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
