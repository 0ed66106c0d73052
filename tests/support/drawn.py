"""Reads the values of figures back from their SVG, by the marks of the scale."""

from __future__ import annotations

import re
from pathlib import Path

_NUMBER = r"(-?[\d.]+)"


def drawn_bars(file: Path) -> list[float]:
    """The heights of the bars, series by series."""
    text = _plot(file)
    corners = re.findall(rf'<path d="((?:[ML] {_NUMBER} {_NUMBER} \n){{4}})z\n" clip-path', text)
    tops = [min(float(y) for y in re.findall(r"[ML] \S+ (\S+)", path[0])) for path in corners]
    return [_value(text, top) for top in tops]


def drawn_lines(file: Path) -> list[list[float]]:
    """The heights of the points of each line."""
    text = _plot(file)
    paths = re.findall(
        r'<g id="line2d_\d+">\s*<path d="([^"]+)" style="fill: none;[^"]*stroke-width: 1\.5', text
    )
    return [[_value(text, float(y)) for y in re.findall(r"[ML] \S+ (\S+)", path)] for path in paths]


def drawn_intervals(file: Path) -> list[tuple[float, float]]:
    """The ends of the intervals of bars and points, series by series."""
    text = _plot(file)
    bars = re.findall(
        rf'<g id="LineCollection_\d+">\s*<path d="M {_NUMBER} {_NUMBER} \nL {_NUMBER} {_NUMBER}', text
    )
    return [(_value(text, float(low)), _value(text, float(high))) for _, low, _, high in bars]


def drawn_cells(file: Path) -> list[float]:
    """The numbers of a heat map, row by row, to two digits."""
    text = file.read_text(encoding="utf-8").partition('<g id="axes_2">')[0]
    return [float(cell) for cell in re.findall(r">(\d\.\d\d)</text>", text)]


def _plot(file: Path) -> str:
    """All but the legend."""
    return file.read_text(encoding="utf-8").partition('<g id="legend_1">')[0]


def _value(text: str, height: float) -> float:
    ticks = re.findall(rf'<g id="ytick_\d+">.*?<use [^>]*y="{_NUMBER}".*?>{_NUMBER}</text>', text, re.DOTALL)
    (first_y, first), (last_y, last) = [(float(y), float(value)) for y, value in (ticks[0], ticks[-1])]
    return first + (height - first_y) * (last - first) / (last_y - first_y)
