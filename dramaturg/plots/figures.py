"""Figures drawn with matplotlib (the extra ``plots``), and the tables and charts of a summary as files."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, radians, sin
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.plots.tables import csv, latex, markdown
from dramaturg.report.charts import Mark, drawn_map, shortened
from dramaturg.report.tokens import SERIES, light
from dramaturg.tables import sections
from dramaturg.tables.model import SHARE, Cell, Point, PointMap, Table, file_name, named

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


NO_PLOTS = "matplotlib is not installed, so no figure is drawn: pip install 'dramaturg[plots]'"
"""The note where figures are not drawn."""

_UPRIGHT = 10
_MARKERS = ("o", "s", "D", "^", "v", "<", ">", "p", "P", "X", "*", "h", "d", "+", "x")
"""The marks of series, each of another form, for print without colours."""
_LINE_SHIFT = 0.015
"""How far lines with intervals are apart, as a share of the horizontal axis."""
_RANK_SHIFT = 0.06
"""The distance of lines of equal ranks."""
_POINTS_A_PIXEL = 0.54
"""Typographic points of a plot for a pixel of the drawn map, which is 720 pixels wide."""
_HEIGHT = 4.2
"""The usual height in inches."""
_USUAL_NAMES = 0.8
"""The part of it, in inches, that names of categories may take."""

_LEGEND_LINE = 0.21
"""The height of a line of a legend in inches."""
_LETTERS_AN_INCH = 12
"""Letters of a title in an inch."""
_PRINTED_COLOR = "0.7"
_INKED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")

Values = Sequence[float | None]
"""The values of a series. None: there is none."""
Bounds = Sequence[tuple[float, float] | None]
"""The ends of the 95 % intervals of a series. None: there is none."""


@dataclass(frozen=True)
class Figure:
    """A figure."""

    name: str
    """The name of its files, e.g. "figure-3"."""
    title: str
    """The caption."""
    labels: Sequence[str]
    """The categories along the horizontal axis, or the columns of a heat map."""
    series: Mapping[str, Values]
    """The values by the name of the series, or by the row of a heat map."""
    value_name: str = ""
    """The name of the values, with their unit."""
    label_name: str = ""
    """The name of the categories."""
    limits: tuple[float, float] | None = None
    """The ends of the scale of values. None: by the values."""
    notes: Sequence[str] = field(default=())
    """Sentences below the figure."""
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    """The intervals by the name of the series, of bars and lines. A series may lack them."""
    printed: Sequence[str] = ()
    """The names of the series that a paper prints, which are grey; their bars are hatched."""
    printed_from: int | None = None
    """The place from which categories are those of a paper; their bars are hatched. None: there are none."""

    def draw(self, axes: Axes) -> None:
        """Draws the figure."""
        raise NotImplementedError

    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return _width(0.0), _HEIGHT


class BarChart(Figure):
    """Bars of each series, side by side, for each category.

    Where no category has two values, the series differ by color alone.
    """

    def draw(self, axes: Axes) -> None:
        """Draws the figure."""
        columns = self._columns()
        width = 0.8 / columns
        for index, (name, values) in enumerate(self.series.items()):
            places = [at - 0.4 + width * (index % columns + 0.5) for at in range(len(self.labels))]
            shown = [(at, value) for at, value in zip(places, values, strict=True) if value is not None]
            style: dict[str, Any] = {"color": _PRINTED_COLOR, "hatch": "//"} if name in self.printed else {}
            bars = axes.bar(
                [at for at, _ in shown], [value for _, value in shown], width, label=name, **style
            )
            for bar, (at, _) in zip(bars, shown, strict=True):
                if self.printed_from is not None and at > self.printed_from - 0.5:
                    bar.set(hatch="//", alpha=0.6)
            _draw_bounds(axes, places, values, self.bounds.get(name, ()), "0.25", outlined=True)
        _label_categories(axes, self.labels)
        _finish_scale(self, axes)

    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return _width(0.28 * len(self.labels) * self._columns()), _HEIGHT + _names_height(self.labels)

    def _columns(self) -> int:
        """The number of bars side by side."""
        most = [
            sum(value is not None for value in values) for values in zip(*self.series.values(), strict=True)
        ]
        return len(self.series) if max(most, default=0) > 1 else 1


class LineChart(Figure):
    """A line with markers for each series. It passes over places without a value.

    Labels that are numbers have the places of their numbers.
    """

    def draw(self, axes: Axes) -> None:
        """Draws the figure."""
        numeric = all(label.isdecimal() for label in self.labels)
        labelled = [int(label) if numeric else index for index, label in enumerate(self.labels)]
        # Intervals of several series stand beside one another.
        shift = _LINE_SHIFT * (max(labelled) - min(labelled)) if self.bounds else 0.0
        middle = (len(self.series) - 1) / 2
        for index, (name, values) in enumerate(self.series.items()):
            places = [place + shift * (index - middle) for place in labelled]
            known = [(place, value) for place, value in zip(places, values, strict=True) if value is not None]
            style: dict[str, Any] = (
                {"color": _PRINTED_COLOR, "linestyle": "--"} if name in self.printed else {}
            )
            (line,) = axes.plot(
                [place for place, _ in known],
                [value for _, value in known],
                marker=_MARKERS[index % len(_MARKERS)],
                label=name,
                clip_on=False,
                **style,
            )
            _draw_bounds(axes, places, values, self.bounds.get(name, ()), line.get_color())
        _label_categories(axes, self.labels, labelled)
        _finish_scale(self, axes)

    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return _width(0.7 * len(self.labels)), _HEIGHT


class RankChart(LineChart):
    """A line for each series; rank 1 is on top. Lines of equal ranks are drawn beside one another."""

    def draw(self, axes: Axes) -> None:
        """Draws the figure."""
        middle = (len(self.series) - 1) / 2
        for index, (name, values) in enumerate(self.series.items()):
            shift = _RANK_SHIFT * (index - middle)
            known = [(place, value + shift) for place, value in enumerate(values) if value is not None]
            axes.plot(
                [place for place, _ in known],
                [value for _, value in known],
                marker=_MARKERS[index % len(_MARKERS)],
                label=name,
            )
        _label_categories(axes, self.labels)
        _finish_scale(self, axes)
        axes.locator_params(axis="y", integer=True)
        axes.invert_yaxis()


class HeatMap(Figure):
    """A value for each row and column, as color and number."""

    def draw(self, axes: Axes) -> None:
        """Draws the figure."""
        from matplotlib.colors import LinearSegmentedColormap

        cells = [[float("nan") if value is None else value for value in row] for row in self.series.values()]
        low, high = self.limits or (None, None)
        colours = LinearSegmentedColormap.from_list("heat", [light("low"), light("high")])
        image = axes.imshow(cells, cmap=colours, aspect="auto", vmin=low, vmax=high)
        axes.figure.colorbar(image, ax=axes, label=self.value_name)
        _label_categories(axes, self.labels)
        axes.set_yticks(range(len(self.series)), list(self.series))
        for place, row in enumerate(self.series.values()):
            for column, value in enumerate(row):
                if value is not None:
                    axes.text(column, place, f"{value:.2f}", ha="center", va="center", size=7)

    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return max(5.0, 3.4 + 0.6 * len(self.labels)), max(2.5, 1.6 + 0.3 * len(self.series))


class IntervalChart(Figure):
    """A point with its interval for each category; the series are "mean", "lower" and "upper"."""

    def draw(self, axes: Axes) -> None:
        """Draws the figure."""
        rows = zip(self.series["mean"], self.series["lower"], self.series["upper"], strict=True)
        for place, (mean, lower, upper) in enumerate(rows):
            if lower is not None and upper is not None:
                axes.plot([lower, upper], [place, place], color=light("accent"), linewidth=2)
            if mean is not None:
                axes.plot([mean], [place], color=light("accent"), marker="o")
        axes.set_yticks(range(len(self.labels)), list(self.labels))
        axes.invert_yaxis()
        axes.set_xlabel(self.value_name)
        axes.set_ylabel(self.label_name)
        if self.limits is not None:
            axes.set_xlim(*self.limits)
        axes.spines[["top", "right"]].set_visible(False)

    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 6.4, max(2.0, 1.2 + 0.3 * len(self.labels))


@dataclass(frozen=True)
class PointChart(Figure):
    """Named points on a plane. The labels are their groups."""

    marks: Sequence[Mark] = ()
    points: Sequence[Point] = ()

    @classmethod
    def of(cls, one: PointMap) -> PointChart:
        """The chart of a map."""
        name = file_name(one.caption)
        return cls(name, one.caption, one.groups, {}, marks=drawn_map(one).marks, points=one.points)

    def draw(self, axes: Axes) -> None:
        """Draws the figure."""
        heaviest = max((point.weight for point in self.points), default=0.0) or 1.0
        for number, group in enumerate(self.labels):
            mine = [point for point in self.points if point.group == group]
            axes.scatter(
                [point.x for point in mine],
                [point.y for point in mine],
                [20 + 100 * point.weight / heaviest for point in mine],
                marker=_MARKERS[number % len(_MARKERS)],
                alpha=0.8,
                label=group,
            )
        for mark in self.marks:
            if mark.label is not None:
                x, y, anchor = mark.label
                point = self.points[mark.number]
                axes.annotate(
                    shortened(mark.name),
                    (point.x, point.y),
                    xytext=(_POINTS_A_PIXEL * (x - mark.x), _POINTS_A_PIXEL * (mark.y - y + 4)),
                    textcoords="offset points",
                    ha="left" if anchor == "start" else "right",
                    va="center",
                    fontsize=7,
                )
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel("first principal component")
        axes.set_ylabel("second principal component")

    def size(self) -> tuple[float, float]:
        """Width and height in inches."""
        return 7.6, 5.0


def counted(caption: str, cells: Iterable[Cell]) -> str:
    """A title with the least and the largest number of items that its figures rest on."""
    counts = [cell.judged for cell in cells if cell.judged is not None and cell.value is not None]
    if not counts:
        return caption
    least, most = min(counts), max(counts)
    return f"{caption} (n = {least:,}{f' to {most:,}' if most > least else ''})"


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def write_figure(figure: Figure, folder: Path, *, pdf: bool = False) -> Sequence[Path]:
    """Writes a figure as SVG and PNG, and as PDF if asked to; files that exist are replaced.

    Raises:
        OSError: A file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    # Text stays text, and the same figures give the same file.
    series = [one for one, _ in SERIES]
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": figure.name,
        "font.size": 9,
        "axes.prop_cycle": f"cycler('color', {series})",
        **dict.fromkeys(_INKED, light("ink")),
    }
    with mpl.rc_context(style):
        canvas = Canvas(figsize=figure.size(), layout="constrained")
        axes = canvas.add_subplot()
        figure.draw(axes)
        _add_legend(canvas, axes)
        # Title and axes share the width; a title that is wider than the figure would be cut.
        canvas.suptitle(fill(figure.title, int(_LETTERS_AN_INCH * figure.size()[0])), fontsize="large")
        # Each format would arrange the parts anew.
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")
        svg, png = folder / f"{figure.name}.svg", folder / f"{figure.name}.png"
        canvas.savefig(svg, metadata={"Date": None})
        canvas.savefig(png, dpi=160)
        if not pdf:
            return svg, png
        paged = folder / f"{figure.name}.pdf"
        canvas.savefig(paged, metadata={"CreationDate": None})
    return svg, png, paged


def _add_legend(canvas: Canvas, axes: Axes) -> None:
    """Adds the legend of several series below the plot, and makes the figure higher by as much."""
    marks, names = axes.get_legend_handles_labels()
    if len(names) < 2:
        return
    width, height = canvas.get_size_inches()
    columns = max(1, int(width / (0.5 + max(map(len, names)) / _LETTERS_AN_INCH)))
    canvas.set_size_inches(width, height + _LEGEND_LINE * ceil(len(names) / columns))
    canvas.legend(marks, names, loc="outside lower center", ncols=columns, frameon=False)


def _names_height(labels: Sequence[str]) -> float:
    """How many inches long names take from the plot beyond what a usual figure leaves for them."""
    angle = _angle(labels)
    return max(0.0, max(map(len, labels), default=0) * sin(radians(angle)) / _LETTERS_AN_INCH - _USUAL_NAMES)


def _angle(labels: Sequence[str]) -> int:
    """How steep names stand, in degrees: steeper where many of them are close to each other."""
    if max(map(len, labels), default=0) <= _UPRIGHT:
        return 0
    return 35 if len(labels) <= _UPRIGHT else 60


def _width(categories: float) -> float:
    """The width of a figure in inches, by that of its categories."""
    return max(5.0, 1.6 + categories)


def _draw_bounds(
    axes: Axes,
    places: Sequence[float],
    values: Values,
    bounds: Bounds,
    color: Any,
    *,
    outlined: bool = False,
) -> None:
    """Draws the intervals of the values that have one. On bars of dark colours an outline makes them seen."""
    from matplotlib.patheffects import withStroke

    for place, value, ends in zip(places, values, bounds, strict=False):
        if value is not None and ends is not None:
            # An interval by another method than the value need not contain it.
            below, above = max(0.0, value - ends[0]), max(0.0, ends[1] - value)
            drawn = axes.errorbar([place], [value], [[below], [above]], color=color, capsize=2, linewidth=1)
            for line in drawn.lines[2] if outlined else ():
                line.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def _finish_scale(figure: Figure, axes: Axes) -> None:
    axes.set_ylabel(figure.value_name)
    axes.set_xlabel(figure.label_name)
    if figure.limits is not None:
        axes.set_ylim(*figure.limits)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def _label_categories(axes: Axes, labels: Sequence[str], places: Sequence[int] | None = None) -> None:
    at = range(len(labels)) if places is None else places
    angle = _angle(labels)
    axes.set_xticks(at, list(labels), rotation=angle, ha="right" if angle else "center")


_FORMS = ((".md", markdown), (".csv", csv), (".tex", latex))


def write_plots(summary: Summary, folder: Path, *, draw: bool) -> Sequence[Path]:
    """Writes each table as Markdown, CSV and LaTeX (booktabs), and its charts as SVG, PNG and PDF.

    Args:
        summary: The figures.
        folder: The folder; made if it does not exist. Files that exist are replaced.
        draw: Whether charts are drawn, which needs matplotlib.

    Returns:
        The files.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shown = list(sections(summary))
    written: list[Path] = []
    for table in named(table for section in shown for table in section.tables):
        written += write_table(table, folder)
        for figure in _figures(table) if draw else ():
            written += write_figure(figure, folder, pdf=True)
    for one in (one for section in shown for one in section.maps) if draw else ():
        written += write_figure(PointChart.of(one), folder, pdf=True)
    return written


def write_table(table: Table, folder: Path) -> Sequence[Path]:
    """Writes a table as Markdown, CSV and LaTeX; files that exist are replaced.

    Raises:
        OSError: A file cannot be written.
    """
    written = []
    for suffix, form in _FORMS:
        file = folder / f"{table.name}{suffix}"
        # The byte order mark lets spreadsheets read CSV as UTF-8. RFC 4180 has its own line ends.
        encoding = "utf-8-sig" if suffix == ".csv" else "utf-8"
        file.write_text(form(table), encoding=encoding, newline="")
        written.append(file)
    return written


def _figures(table: Table) -> Iterator[Figure]:
    heads = [place for place in range(table.heads) if not table.columns[place].number] or [0]
    labels = [", ".join(row.cells[place].text for place in heads) for row in table.rows]
    unique = len(set(labels)) == len(labels)
    heated = [
        place
        for place in range(table.heads, len(table.columns))
        if any(cell.heat is not None and cell.value is not None for cell in table.column(place))
    ]
    if len(heated) > 1 and unique:
        series = {
            label: [row.cells[place].value for place in heated]
            for label, row in zip(labels, table.rows, strict=True)
        }
        columns = [table.columns[place].name for place in heated]
        caption = counted(table.caption, (cell for place in heated for cell in table.column(place)))
        yield HeatMap(table.name, caption, columns, series, limits=_limits(table, heated))
    for place in range(len(table.columns)):
        cells = table.column(place)
        scales = {cell.scale for cell in cells if cell.scale is not None}
        if table.has_intervals(place) and len(scales) == 1:
            bounds = [cell.bounds or (None, None) for cell in cells]
            yield IntervalChart(
                f"{table.name}-intervals",
                counted(table.caption, cells),
                labels,
                {
                    "mean": [cell.value for cell in cells],
                    "lower": [lower for lower, _ in bounds],
                    "upper": [upper for _, upper in bounds],
                },
                value_name="mean, 95 % interval",
                limits=scales.pop(),
            )
            return


def _limits(table: Table, places: Sequence[int]) -> tuple[float, float] | None:
    """The scale of shares if all values are shares."""
    values = [cell.value for place in places for cell in table.column(place)]
    return SHARE if all(value is None or 0 <= value <= 1 for value in values) else None
