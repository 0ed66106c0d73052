"""Tables of ratings, comparisons and scores of replies."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import DialoguesSummary, Summary, TaskFigures
from dramaturg.cli.cells import ABSENT, named, percent
from dramaturg.cli.summaries.cells import abstention_table, group_name, interval_cell, value_cell
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal

LISTED_TASKS = 10
"""The number of the hardest and of the easiest tasks of each kind that are shown (SimulBench, Table 2)."""

_DIGITS = 2


def show(console: Terminal, summary: Summary) -> None:
    """Prints mean ratings, the hardest and easiest tasks, pairs, scores, and unusable replies."""
    found = summary.dialogues
    if found.aced_script_count and not summary.options.aced_kept:
        console.print(f"{found.aced_script_count} scripts that every model aces are left out of the ratings")
    print_tables(console, _ratings(found))
    tasks = [one for one in found.tasks if one.group == "all"]
    for kind in dict.fromkeys(("stateless", "stateful", *(one.simulation_kind for one in tasks))):
        mine = [one for one in tasks if one.simulation_kind == kind]
        if len(mine) > 1:
            print_tables(console, _tasks(kind, mine))
    unusable = Table("no usable reply of", "because", figures=("scripts",))
    for one in sorted(found.unusable_replies, key=lambda one: (-one.count, one.model, one.reason)):
        unusable.add_row(one.model, one.reason, str(one.count))
    abstained = abstention_table("rating abstained because", found.abstentions_by_reason, "ratings")
    print_tables(console, _pairs(found), _attributes(found), unusable, abstained)


def _ratings(found: DialoguesSummary) -> Table:
    table = Table("model", "scripts of", figures=("n", "rated", "mean", "95 % interval"))
    for one in found.ratings:
        group = f"{one.group}, {group_name(one.tags)}" if one.tags else one.group
        figures = value_cell(one.mean, _DIGITS), interval_cell(one.mean, _DIGITS)
        table.add_row(one.model, group, str(one.script_count), str(one.mean.count), *figures)
    return table


def _tasks(kind: str, found: Sequence[TaskFigures]) -> Table:
    listed = min(LISTED_TASKS, len(found) // 2)
    table = Table("hardest", "mean", "easiest", "mean", title=f"{kind} tasks".strip())
    for hard, easy in zip(found[:listed], found[::-1][:listed], strict=True):
        table.add_row(hard.task, value_cell(hard.mean, _DIGITS), easy.task, value_cell(easy.mean, _DIGITS))
    return table


def _pairs(found: DialoguesSummary) -> Table:
    heads = ("win", "tie", "lose", "abstained", "difference", "orders differ", "first shown")
    table = Table("first", "second", "judge", "scripts of", figures=heads)
    for one in found.pairs:
        numbers = (one.win_count, one.tie_count, one.lose_count, one.abstained_count)
        difference = percent(one.difference if one.HasField("difference") else None, 2, signed=True)
        table.add_row(
            one.first_model,
            one.second_model,
            one.judge,
            one.group,
            *map(str, numbers),
            difference,
            percent(one.inconsistent_share if one.HasField("inconsistent_share") else None),
            percent(one.first_presented_share if one.HasField("first_presented_share") else None),
        )
    return table


def _attributes(found: DialoguesSummary) -> Table:
    table = Table(
        "model", "scored for", "by", figures=("replies", "scored", "mean", "95 % interval", "above 0.5")
    )
    for one in found.attributes:
        coverage = one.mean.count / one.mean.total if one.mean.total else None
        table.add_row(
            one.model,
            named(one.attribute, ABSENT),
            one.judge,
            str(one.mean.total),
            percent(coverage, 0),
            value_cell(one.mean, _DIGITS),
            interval_cell(one.mean, _DIGITS),
            percent(one.high_share if one.HasField("high_share") else None),
        )
    return table
