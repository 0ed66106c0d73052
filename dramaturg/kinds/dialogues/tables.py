"""Figures of ratings and comparisons of replies (SimulBench, Tables 1 to 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import DialoguesSummary, RatingFigures, Summary
from dramaturg.results.groups import by_grouping
from dramaturg.tables.common import ranking_lead
from dramaturg.tables.model import (
    ABSENT,
    SHARE,
    Cell,
    Column,
    Scale,
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
    optional,
    samples_link,
    share_cell,
    words,
)
from dramaturg.tables.verdicts import reply_repeats

RATINGS: Scale = (1.0, 10.0)
_SCALE = "1 to 10"
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
    yield from reply_repeats(found.ratings, found.pairs)
    if found.attributes:
        yield Section("Attributes", [_attributes(found)], "Scores from 0 to 1 of each attribute.")
    if found.unusable_replies:
        yield Section("Unusable replies", [_unusable(found)])


def _unusable(found: DialoguesSummary) -> Table:
    table = Table("Replies that could not be judged", columns("model", "reason", figures=("replies",)))
    for one in sorted(found.unusable_replies, key=lambda one: (-one.count, one.model, one.reason)):
        table.add_row(
            name_cell(one.model), words(one.reason), count(one.count, samples_link(model=one.model))
        )
    return table


def _ratings(summary: Summary) -> Section:
    figures = ("scripts", "rated", Column("mean", interval=_SCALE))
    table = Table("Mean ratings", columns("model", "scripts of", figures=figures))
    for one in summary.dialogues.ratings:
        if not one.tags:
            table.add_row(
                name_cell(one.model, samples_link(model=one.model, measure="rating")),
                one.group,
                count(one.script_count),
                count(one.mean.count),
                estimate_cell(one.mean, scale=RATINGS, heat=True, show=figure),
            )
    note = "Mean ratings from 1 to 10."
    if summary.dialogues.aced_script_count and not summary.options.aced_kept:
        note += f" {summary.dialogues.aced_script_count:,} scripts that every model aces are left out."
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
    title = f"{kind} tasks, {group} scripts".strip().capitalize()
    table = Table(title, columns("task", figures=(Column("mean", interval=_SCALE), "ratings")))
    for one in listed:
        table.add_row(
            Cell(one.task, link=samples_link(task=one.task)),
            estimate_cell(one.mean, scale=RATINGS, heat=True, show=figure),
            count(one.mean.count),
        )
    note = "Mean ratings over scripts and models, the lowest first."
    if not whole:
        note += f" The {LISTED_TASKS} hardest and the {LISTED_TASKS} easiest of {len(tasks):,}."
    return Section(title, [table], note)


def _pairs(found: DialoguesSummary) -> Table:
    heads = ("win", "tie", "lose", "abstained", "difference", "orders differ", "first presented")
    table = Table("Comparisons of replies", columns("first", "second", "judge", "scripts of", figures=heads))
    for one in found.pairs:
        table.add_row(
            name_cell(one.first_model),
            name_cell(one.second_model),
            name_cell(one.judge),
            one.group,
            count(one.win_count),
            count(one.tie_count),
            count(one.lose_count),
            count(one.abstained_count),
            estimate_cell(one.difference, show=_signed),
            share_cell(optional(one, "inconsistent_share")),
            share_cell(optional(one, "first_presented_share")),
        )
    return table


def _signed(value: float | None) -> str:
    return ABSENT if value is None else f"{100 * value:+.1f} pp"


def _attributes(found: DialoguesSummary) -> Table:
    heads = ("replies", "scored", Column("mean", interval="0 to 1"), "above 0.5")
    table = Table("Scores of attributes", columns("model", "attribute", "scorer", figures=heads))
    for one in found.attributes:
        table.add_row(
            name_cell(one.model),
            name_cell(one.attribute, absent=ABSENT),
            name_cell(one.judge),
            count(one.mean.total),
            count(one.mean.count),
            estimate_cell(one.mean, scale=SHARE, show=figure),
            share_cell(optional(one, "high_share"), one.mean.count, one.mean.total),
        )
    return table
