"""Figures of ratings and comparisons of replies (SimulBench, Tables 1 to 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import DialoguesSummary, RatingFigures, Summary
from dramaturg.report.figures.common import percent_of, ranking_lead
from dramaturg.report.tables import (
    ABSENT,
    Cell,
    Scale,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    figure,
    group_key,
    group_rows,
    interval_cell,
    matrix,
    name_cell,
    percent,
    samples_link,
)
from dramaturg.results.groups import by_grouping

RATINGS: Scale = (1.0, 10.0)
LISTED_TASKS = 10
"""The number of the hardest and of the easiest tasks that are shown (SimulBench, Table 2)."""

show_mean = figure


def scale(summary: Summary) -> Scale:
    """The scale of the leaderboard."""
    del summary
    return RATINGS


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    if summary.leaderboard_measure != "rating" or not any(one.rank for one in summary.leaderboard):
        return _pairs_lead(summary)
    return ranking_lead(
        summary,
        lambda one: f"has a mean rating of {figure(one.mean, 1)} of 10 over {one.judged_count:,} replies",
        lambda value: figure(value, 1),
    )


def _pairs_lead(summary: Summary) -> str:
    for one in summary.dialogues.pairs:
        judged = one.win_count + one.tie_count + one.lose_count
        if one.group == "all" and judged:
            return (
                f"{one.first_model} wins {one.win_count:,} of {judged:,} comparisons with "
                f"{one.second_model}, loses {one.lose_count:,} and ties {one.tie_count:,}; "
                f"{one.abstained_count:,} were not judged."
            )
    return "No model is ranked: too few replies have a rating."


def sections(summary: Summary) -> Iterator[Section]:
    """Ratings by group of scripts and by tag, tasks, comparisons, attributes, and unusable replies."""
    found = summary.dialogues
    if found.ratings:
        yield _ratings(summary)
    for names, rows in by_grouping(summary.options, found.ratings):
        yield _group(names, [one for one in rows if one.group == "all"])
    for kind, group in dict.fromkeys((one.simulation_kind, one.group) for one in found.tasks):
        yield _tasks(found, kind, group)
    if found.pairs:
        yield Section(
            "Comparisons of replies",
            [_pairs(found)],
            "Wins, ties and losses of the first model. Orders differ: comparisons with another preference in "
            "the other order. First presented: votes for the reply shown first; 50 % without bias.",
        )
    if found.attributes:
        yield Section("Attributes", [_attributes(found)], "Scores from 0 to 1 of each attribute.")
    if found.unusable_replies:
        yield Section("Unusable replies", [_unusable(found)])


def _unusable(found: DialoguesSummary) -> Table:
    rows = [
        [name_cell(one.model), Cell(one.reason), count(one.count, samples_link(model=one.model))]
        for one in sorted(found.unusable_replies, key=lambda one: (-one.count, one.model, one.reason))
    ]
    heads = columns("model", "reason", figures=("replies",))
    return Table("Replies that could not be judged", heads, rows)


def _ratings(summary: Summary) -> Section:
    rows = [
        [
            name_cell(one.model, samples_link(model=one.model, measure="rating")),
            Cell(one.group),
            count(one.script_count),
            count(one.mean.count),
            estimate_cell(one.mean, scale=RATINGS, heat=True, show=figure),
            interval_cell(one.mean, RATINGS, figure),
        ]
        for one in summary.dialogues.ratings
        if not one.tags
    ]
    heads = ("scripts", "rated", "mean", "95 % interval, 1 to 10")
    note = "Mean ratings from 1 to 10."
    if summary.dialogues.aced_script_count and not summary.options.aced_kept:
        note += f" {summary.dialogues.aced_script_count:,} scripts that every model aces are left out."
    table = Table("Mean ratings", columns("model", "scripts of", figures=heads), rows, heads=2)
    return Section("Ratings", [table], note)


def _group(names: Sequence[str], rows: Sequence[RatingFigures]) -> Section:
    cells = {(group_key(one.tags, names), one.model): one for one in rows}
    models = list(dict.fromkeys(one.model for one in rows))

    def cell(key: str, model: str) -> Cell | None:
        one = cells.get((key, model))
        if one is None:
            return None
        link = samples_link(one.tags, model=model, measure="rating")
        return estimate_cell(one.mean, link, scale=RATINGS, heat=True, show=figure)

    title = ", ".join(names)
    return Section(
        f"{title.capitalize()} by model",
        [matrix(f"Mean rating by {title} and model", names, group_rows(names, rows), models, cell)],
        "Mean ratings from 1 to 10.",
    )


def _tasks(found: DialoguesSummary, kind: str, group: str) -> Section:
    tasks = [one for one in found.tasks if (one.simulation_kind, one.group) == (kind, group)]
    whole = len(tasks) <= 2 * LISTED_TASKS
    listed = tasks if whole else [*tasks[:LISTED_TASKS], *tasks[-LISTED_TASKS:]]
    rows = [
        [
            Cell(one.task, samples_link(task=one.task)),
            estimate_cell(one.mean, scale=RATINGS, heat=True, show=figure),
            interval_cell(one.mean, RATINGS, figure),
            count(one.mean.count),
        ]
        for one in listed
    ]
    heads = ("mean", "95 % interval, 1 to 10", "ratings")
    note = "Mean ratings over scripts and models, the lowest first."
    if not whole:
        note += f" The {LISTED_TASKS} hardest and the {LISTED_TASKS} easiest of {len(tasks):,}."
    title = f"{kind} tasks, {group} scripts".strip().capitalize()
    return Section(title, [Table(title, columns("task", figures=heads), rows)], note)


def _pairs(found: DialoguesSummary) -> Table:
    rows = []
    for one in found.pairs:
        difference = one.difference if one.HasField("difference") else None
        rows.append(
            [
                name_cell(one.first_model),
                name_cell(one.second_model),
                name_cell(one.judge),
                Cell(one.group),
                count(one.win_count),
                count(one.tie_count),
                count(one.lose_count),
                count(one.abstained_count),
                Cell(ABSENT if difference is None else f"{100 * difference:+.1f} %"),
                Cell(percent(one.inconsistent_share if one.HasField("inconsistent_share") else None, 1)),
                Cell(
                    percent(one.first_presented_share if one.HasField("first_presented_share") else None, 1)
                ),
            ]
        )
    heads = ("win", "tie", "lose", "abstained", "difference", "orders differ", "first presented")
    names = ("first", "second", "judge", "scripts of")
    return Table("Comparisons of replies", columns(*names, figures=heads), rows, heads=2)


def _attributes(found: DialoguesSummary) -> Table:
    rows = [
        [
            name_cell(one.model),
            name_cell(one.attribute, absent=ABSENT),
            name_cell(one.judge),
            count(one.mean.total),
            count(one.mean.count),
            estimate_cell(one.mean, show=figure),
            interval_cell(one.mean, (0.0, 1.0), figure),
            Cell(percent_of(one.high_share if one.HasField("high_share") else None)),
        ]
        for one in found.attributes
    ]
    heads = ("replies", "scored", "mean", "95 % interval, 0 to 1", "above 0.5")
    return Table(
        "Scores of attributes", columns("model", "attribute", "scorer", figures=heads), rows, heads=2
    )
