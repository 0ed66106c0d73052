"""The findings of verdicts by kind and model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import FindingFigures
from dramaturg.results.names import finding_name
from dramaturg.tables.cells import count, figure, name_cell, samples_link, share_cell
from dramaturg.tables.model import Cell, Section, Table, columns

_SEVERITIES = ("minor", "major", "critical")


def finding_sections(figures: Sequence[FindingFigures], items: str) -> Iterator[Section]:
    """The section of findings; none without findings.

    Args:
        figures: The figures.
        items: What is judged, in the plural.
    """
    if not figures:
        return
    graded = [name for name in _SEVERITIES if any(one.count_by_severity.get(name) for one in figures)]
    heads = ("findings", f"of {items}", f"{items} with one", *graded)
    table = Table("Findings by kind", columns("kind", "model", figures=heads))
    for one in figures:
        kind = finding_name(one.kind).lower().replace("_", " ")
        link = samples_link(**({} if one.all_models else {"model": one.model}))
        table.add_row(
            Cell(kind),
            "all models" if one.all_models else name_cell(one.model, link),
            count(one.finding_count),
            figure(one.finding_count / one.output_count),
            share_cell(one.affected_count / one.output_count, one.output_count, one.output_count),
            *(count(one.count_by_severity.get(name, 0)) for name in graded),
        )
    yield Section("Findings", [table], f"What judges found; the second figure is the mean over all {items}.")
