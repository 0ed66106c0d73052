"""The agreement of the judges of panels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dramaturg.api.evaluation.v1.summary_pb2 import PanelFigures
from dramaturg.report.figures.common import percent_of
from dramaturg.report.tables import Cell, Section, Table, columns, count, figure, samples_link

_HEADS = ("judges differ", "share")
_DIFFERENCE = "mean difference"


def panel_sections(figures: Iterable[PanelFigures], items: str) -> Iterator[Section]:
    """The section of panels; none without panels.

    Args:
        figures: The figures.
        items: What is judged, in the plural.
    """
    found = [one for one in figures if not one.tags]
    if not found:
        return
    scored = any(one.HasField("mean_difference") for one in found)
    rows = [
        [
            Cell(one.criterion, samples_link(measure=one.criterion)),
            count(one.text_count),
            count(one.differing_count),
            Cell(percent_of(one.differing_share if one.HasField("differing_share") else None)),
            *([_difference(one)] if scored else []),
        ]
        for one in found
    ]
    heads = (items, *_HEADS, *([_DIFFERENCE] if scored else []))
    note = f"{items.capitalize()} that at least two judges of a panel judged."
    if scored:
        note += " Difference: highest less lowest score."
    yield Section("Panels", [Table("Agreement of panels", columns("criterion", figures=heads), rows)], note)


def _difference(one: PanelFigures) -> Cell:
    return Cell(figure(one.mean_difference if one.HasField("mean_difference") else None))
