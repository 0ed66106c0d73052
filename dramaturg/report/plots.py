"""The tables and charts of a report as files for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.plots.figures import Figure, HeatMap, IntervalChart, PointMap, write_figure
from dramaturg.plots.tables import Cell, Column, Row, Table, csv, latex, markdown
from dramaturg.report import charts
from dramaturg.report import tables as shown
from dramaturg.report.figures import sections

_POINTS_A_PIXEL = 0.54
"""Typographic points of a plot for a pixel of the page's map, which is 720 pixels wide."""
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
    written: list[Path] = []
    for name, table in _named(summary):
        for suffix, form in _FORMS:
            file = folder / f"{name}{suffix}"
            encoding = "utf-8-sig" if suffix == ".csv" else "utf-8"
            file.write_text(form(_table(name, table)), encoding=encoding, newline="")
            written.append(file)
        for figure in _figures(name, table) if draw else ():
            written += write_figure(figure, folder, pdf=True)
    for one in (one for section in sections(summary) for one in section.maps) if draw else ():
        written += write_figure(_map(one), folder, pdf=True)
    return written


def _map(one: charts.PointMap) -> PointMap:
    series = {
        "x": [point.x for point in one.points],
        "y": [point.y for point in one.points],
        "weight": [point.weight for point in one.points],
        "group": [float(one.groups.index(point.group)) for point in one.points],
    }
    names = [
        (
            mark.number,
            charts.shortened(mark.name),
            _POINTS_A_PIXEL * (mark.label[0] - mark.x),
            _POINTS_A_PIXEL * (mark.y - mark.label[1] + 4),
        )
        for mark in one.marks
        if mark.label is not None
    ]
    return PointMap(_file_name(one.caption), one.caption, one.groups, series, names=names)


def _named(summary: Summary) -> Iterator[tuple[str, shown.Table]]:
    """The tables with names of files, each once."""
    known: dict[str, int] = {}
    for section in sections(summary):
        for table in section.tables:
            name = _file_name(table.caption)
            known[name] = known.get(name, 0) + 1
            yield (name if known[name] == 1 else f"{name}-{known[name]}"), table


def _file_name(caption: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", caption.lower()).strip("-")[:80]


def _table(name: str, table: shown.Table) -> Table:
    kept = [place for place in range(len(table.columns)) if not _repeats(table, place)]
    rows = [Row([Cell(row[place].text, row[place].value) for place in kept]) for row in table.rows]
    return Table(
        name, table.caption, [Column(table.columns[place].name) for place in kept], rows, table.heads
    )


def _repeats(table: shown.Table, place: int) -> bool:
    """Whether a drawn column repeats another one."""
    drawn = any(row[place].interval is not None for row in table.rows)
    names = {column.name for column in table.columns}
    return drawn and (table.columns[place].name == shown.RELATIVE or shown.INTERVAL in names)


def _figures(name: str, table: shown.Table) -> Iterator[Figure]:
    heads = [place for place in range(table.heads) if not table.columns[place].number] or [0]
    labels = [", ".join(row[place].text for place in heads) for row in table.rows]
    unique = len(set(labels)) == len(labels)
    heated = [
        place
        for place in range(table.heads, len(table.columns))
        if any(row[place].heat is not None and row[place].value is not None for row in table.rows)
    ]
    if len(heated) > 1 and unique:
        series = {
            label: [row[place].value for place in heated]
            for label, row in zip(labels, table.rows, strict=True)
        }
        columns = [table.columns[place].name for place in heated]
        yield HeatMap(name, table.caption, columns, series, limits=_limits(table, heated))
    for place, column in enumerate(table.columns):
        if column.name == shown.RELATIVE:
            continue
        marks = [row[place].interval for row in table.rows]
        scales = {mark.scale for mark in marks if mark is not None}
        if len(scales) == 1:
            ends = {
                end: [
                    None if mark is None or (at := getattr(mark, end)) is None else mark.value(at)
                    for mark in marks
                ]
                for end in ("mean", "lower", "upper")
            }
            yield IntervalChart(
                f"{name}-intervals",
                table.caption,
                labels,
                ends,
                value_name="mean, 95 % interval",
                limits=scales.pop(),
            )
            return


def _limits(table: shown.Table, places: Sequence[int]) -> tuple[float, float] | None:
    """The scale of shares if all values are shares."""
    values = [row[place].value for row in table.rows for place in places]
    return shown.SHARE if all(value is None or 0 <= value <= 1 for value in values) else None
