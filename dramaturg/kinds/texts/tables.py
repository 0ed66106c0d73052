"""Figures of texts judged by a rubric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import ScoreFigures, Summary
from dramaturg.results.groups import by_grouping
from dramaturg.tables.common import ranking_lead
from dramaturg.tables.model import (
    Cell,
    Column,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    figure,
    group_key,
    group_rows,
    matrix,
    name_cell,
    percent,
    percent_of,
    samples_link,
)
from dramaturg.tables.verdicts import (
    by_model_table,
    commonest_fault,
    criteria_repeats,
    criteria_table,
    finding_sections,
    group_sections,
    panel_sections,
)

show_mean = percent_of


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    return ranking_lead(
        summary,
        lambda one: f"reaches {percent(one.mean)} over {one.judged_count:,} verdicts",
        percent_of,
        lambda model: commonest_fault(summary.texts.verdicts, model),
    )


def sections(summary: Summary) -> Iterator[Section]:
    """Criteria that pass or fail, criteria with a scale, both by model and by group, panels, and repeats."""
    found = summary.texts
    verdicts = [one for one in found.verdicts if not one.tags]
    if verdicts:
        note = f"PASS among PASS and FAIL, over {found.text_count:,} texts of all models."
        pooled = [one for one in verdicts if one.all_models]
        models = list(dict.fromkeys(one.model for one in verdicts if not one.all_models))
        yield Section("Criteria", [criteria_table(pooled), by_model_table(verdicts, models)], note)
    scores = [one for one in found.scores if not one.tags]
    if scores:
        yield Section("Scores", [_scores(scores)], "Mean scores, each on the scale of its criterion.")
    yield from group_sections(summary.options, found.verdicts)
    for names, some in by_grouping(summary.options, found.scores):
        yield _group_scores(names, [one for one in some if one.all_models])
    yield from panel_sections(found.panels, "texts")
    yield from criteria_repeats([*found.verdicts, *found.scores])
    yield from finding_sections(found.findings, "texts")


def _scores(scores: Sequence[ScoreFigures]) -> Table:
    figures = (
        "scored",
        "ABSTAIN",
        Column("mean", interval="on the scale"),
        Column("if all abstentions were lowest, highest", detail=True),
    )
    table = Table("Scores", columns("criterion", "model", "scale", figures=figures))
    for one in scores:
        scale = (float(one.lowest), float(one.highest))
        model = {} if one.all_models else {"model": one.model}
        link = samples_link(measure=one.criterion, **model)
        table.add_row(
            Cell(one.criterion, link=link),
            "all models" if one.all_models else name_cell(one.model, link),
            f"{one.lowest} to {one.highest}",
            count(one.score_count),
            count(one.verdict_count - one.score_count),
            estimate_cell(one.mean, scale=scale, heat=True, show=figure),
            f"{figure(one.mean_lowest)}, {figure(one.mean_highest)}",
        )
    return table


def _group_scores(names: Sequence[str], rows: Sequence[ScoreFigures]) -> Section:
    def column(one: ScoreFigures) -> str:
        return f"{one.criterion} ({one.lowest} to {one.highest})"

    found = {(group_key(one.tags, names), column(one)): one for one in rows}
    heads = list(dict.fromkeys(column(one) for one in rows))

    def cell(key: str, head: str) -> Cell | None:
        one = found.get((key, head))
        if one is None:
            return None
        scale = (float(one.lowest), float(one.highest))
        link = samples_link(one.tags, measure=one.criterion)
        return estimate_cell(one.mean, link, scale=scale, heat=True, show=figure)

    title = ", ".join(names).capitalize()
    table = matrix(
        f"Mean score by {title.lower()} and criterion", names, group_rows(names, rows), heads, cell
    )
    return Section(
        f"{title} by score", [table], "Mean scores over all models, on the scale of each criterion."
    )
