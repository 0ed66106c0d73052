"""The table of panels."""

from __future__ import annotations

from collections.abc import Iterable

from dramaturg.api.evaluation.v1.summary_pb2 import PanelFigures
from dramaturg.cli.cells import number, percent
from dramaturg.cli.tables import Table

_FIGURES = ("by two or more", "differ", "share")
_DIFFERENCE = "mean difference"


def panel_table(figures: Iterable[PanelFigures]) -> Table:
    """The agreement of the judges of panels by criterion, over all samples."""
    rows = [one for one in figures if not one.tags]
    scored = any(one.HasField("mean_difference") for one in rows)
    table = Table("judges of panels", figures=(*_FIGURES, *([_DIFFERENCE] if scored else [])))
    for one in rows:
        difference = one.mean_difference if one.HasField("mean_difference") else None
        table.add_row(
            one.criterion,
            str(one.text_count),
            str(one.differing_count),
            percent(one.differing_share),
            *([number(difference, 2)] if scored else []),
        )
    return table
