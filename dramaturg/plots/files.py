"""The tables and charts of a summary as files for papers and slides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.plots.figures import Figure, HeatMap, IntervalChart, PointChart, counted, write_figure
from dramaturg.plots.tables import csv, latex, markdown
from dramaturg.tables import sections
from dramaturg.tables.cells import SHARE
from dramaturg.tables.model import Table, named

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
