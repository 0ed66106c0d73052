"""Figures of verdicts on scripts (ABSEval, Table 5 and Figures 5, 9, 10 and 12)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import Summary, VerdictFigures
from dramaturg.report.figures.common import percent_of, ranking_lead
from dramaturg.report.tables import (
    ABSENT,
    SHARE,
    Cell,
    Section,
    Table,
    by_grouping,
    columns,
    count,
    estimate_cell,
    group_key,
    group_rows,
    interval_cell,
    matrix,
    percent,
    samples_link,
)

ALL = "all"

show_mean = percent_of


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    return ranking_lead(
        summary, lambda one: f"passes {percent(one.mean)} of {one.judged_count:,} verdicts", percent
    )


def sections(summary: Summary) -> Iterator[Section]:
    """Criteria, criterion by model, and each group by model and by criterion."""
    figures = summary.scripts.figures
    whole = [one for one in figures if not one.tags]
    note = f"PASS among PASS and FAIL, over {summary.scripts.candidate_count:,} candidates of all models."
    yield Section("Criteria", [_criteria([one for one in whole if one.all_models])], note)
    models = list(dict.fromkeys(one.model for one in whole if not one.all_models))
    if models:
        yield Section(
            "Criterion by model", [_by_model(whole, models)], "The share of PASS among PASS and FAIL."
        )
    for names, rows in by_grouping(summary.options, figures):
        yield _group(names, rows, models)


def _criteria(rows: Sequence[VerdictFigures]) -> Table:
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


def _by_model(whole: Sequence[VerdictFigures], models: Sequence[str]) -> Table:
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


def _group(names: Sequence[str], rows: Sequence[VerdictFigures], models: Sequence[str]) -> Section:
    by_model = {
        (group_key(one.tags, names), one.model): one
        for one in rows
        if not one.all_models and not one.criterion
    }
    pooled = {(group_key(one.tags, names), one.criterion): one for one in rows if one.all_models}
    criteria = list(dict.fromkeys(criterion for _, criterion in pooled if criterion))
    keyed = group_rows(names, rows)

    def of_model(key: str, model: str) -> Cell | None:
        one = by_model.get((key, model))
        return one and estimate_cell(one.pass_rate, samples_link(one.tags, model=model), heat=True)

    def of_criterion(key: str, criterion: str) -> Cell | None:
        one = pooled.get((key, criterion))
        return one and estimate_cell(one.pass_rate, samples_link(one.tags, measure=criterion), heat=True)

    title = ", ".join(names).capitalize()
    return Section(
        f"{title} by model and by criterion",
        [
            matrix(f"PASS of judged by {title.lower()} and model", names, keyed, models, of_model),
            matrix(f"PASS of judged by {title.lower()} and criterion", names, keyed, criteria, of_criterion),
        ],
        "The share of PASS among PASS and FAIL, of all criteria by model and of all models by criterion.",
    )
