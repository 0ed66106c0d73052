"""Figures of verdicts on scripts (ABSEval, Table 5 and Figures 5, 9, 10 and 12)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import Summary, VerdictFigures
from dramaturg.report.figures.common import percent_of, ranking_lead
from dramaturg.report.figures.verdicts import by_model_table, criteria_table
from dramaturg.report.tables import (
    Cell,
    Section,
    estimate_cell,
    group_key,
    group_rows,
    matrix,
    percent,
    samples_link,
)
from dramaturg.results.groups import by_grouping

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
    yield Section("Criteria", [criteria_table([one for one in whole if one.all_models])], note)
    models = list(dict.fromkeys(one.model for one in whole if not one.all_models))
    if models:
        yield Section(
            "Criterion by model", [by_model_table(whole, models)], "The share of PASS among PASS and FAIL."
        )
    for names, rows in by_grouping(summary.options, figures):
        yield _group(names, rows, models)


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
