"""The tables of a page as files that a reader can keep: CSV, LaTeX, and a chart as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dramaturg.plots.tables import csv, latex
from dramaturg.tables.model import Table


def files_of(tables: Iterable[Table], draw: Callable[[Table], str]) -> Mapping[str, Mapping[str, str]]:
    """The text of the files of each table, by the name and the ending of the file.

    Args:
        tables: The tables.
        draw: Returns the chart of a table as SVG. Empty: it has none.
    """
    return {
        table.name: {
            # The byte order mark lets spreadsheets read CSV as UTF-8.
            "csv": f"\ufeff{csv(table)}",
            "tex": latex(table),
            **({"svg": chart} if (chart := draw(table)) else {}),
        }
        for table in tables
    }
