"""Tables of verdicts, which several kinds have."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import VerdictFigures
from dramaturg.report.figures.common import percent_of
from dramaturg.report.tables import (
    ABSENT,
    SHARE,
    Cell,
    Table,
    columns,
    count,
    estimate_cell,
    interval_cell,
    matrix,
    samples_link,
)

ALL = "all"
"""The name of all criteria together."""


def criteria_table(rows: Sequence[VerdictFigures]) -> Table:
    """The verdicts on all models by criterion."""
    made = []
    for one in rows:
        criterion = {"measure": one.criterion} if one.criterion else {}
        abstained = one.verdict_count - one.pass_count - one.fail_count
        made.append(
            [
                Cell(one.criterion or ALL, samples_link(**criterion)),
                count(one.pass_count, samples_link(**criterion, outcome="pass")),
                count(one.fail_count, samples_link(**criterion, outcome="fail")),
                count(abstained, samples_link(**criterion, outcome="abstain")),
                estimate_cell(one.pass_rate),
                interval_cell(one.pass_rate, SHARE, percent_of),
                Cell(_bounds(one)),
            ]
        )
    heads = (
        "PASS",
        "FAIL",
        "ABSTAIN",
        "PASS of judged",
        "95 % interval, 0 to 100 %",
        "if all abstentions were FAIL, PASS",
    )
    return Table("Verdicts by criterion", columns("criterion", figures=heads), made)


def _bounds(one: VerdictFigures) -> str:
    if not one.HasField("pass_rate_lowest"):
        return ABSENT
    return f"{percent_of(one.pass_rate_lowest)}, {percent_of(one.pass_rate_highest)}"


def by_model_table(whole: Sequence[VerdictFigures], models: Sequence[str]) -> Table:
    """The share of PASS by criterion and model."""
    cells = {(one.criterion, one.model): one for one in whole if not one.all_models}
    criteria = list(dict.fromkeys(one.criterion for one in whole if one.criterion))

    def cell(criterion: str, model: str) -> Cell | None:
        one = cells.get((criterion, model))
        if one is None:
            return None
        filters = {"measure": criterion} if criterion else {}
        return estimate_cell(one.pass_rate, samples_link(model=model, **filters), heat=True)

    rows = [([Cell(criterion or ALL)], criterion) for criterion in [*criteria, ""]]
    return matrix("PASS of judged by criterion and model", ["criterion"], rows, models, cell)
