"""The agreement of the judges of panels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dramaturg.api.evaluation.v1.summary_pb2 import PanelFigures
from dramaturg.tables.cells import count, figure, optional, samples_link, share_cell
from dramaturg.tables.model import Cell, Section, Table, columns


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
    heads = (items, "judges differ", "share", *(["mean difference"] if scored else []))
    table = Table("Agreement of panels", columns("criterion", figures=heads))
    for one in found:
        table.add_row(
            Cell(one.criterion, link=samples_link(measure=one.criterion)),
            count(one.text_count),
            count(one.differing_count),
            share_cell(optional(one, "differing_share"), one.text_count, one.text_count),
            *([figure(optional(one, "mean_difference"))] if scored else []),
        )
    note = f"{items.capitalize()} that at least two judges of a panel judged."
    if scored:
        note += " Difference: highest less lowest score."
    yield Section("Panels", [table], note)
