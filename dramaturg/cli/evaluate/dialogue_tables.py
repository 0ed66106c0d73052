"""Tables of ratings, comparisons and scores of replies."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.cli.cells import ABSENT, interval, named, number, percent
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.results.means import Mean
from dramaturg.summaries.dialogues import DialoguesAggregator
from dramaturg.summaries.ratings import STATEFUL, STATELESS, Rated, TaskScore, scores, task_scores
from dramaturg.summaries.reply_scores import HIGH, AttributeScore

LISTED_TASKS = 10
"""How many of the hardest and of the easiest tasks of each kind are shown (Table 2)."""


def show_dialogues(console: Terminal, aggregator: DialoguesAggregator) -> None:
    """Prints mean ratings, the hardest and easiest tasks, pairs, scores, and what could not be judged."""
    kept = aggregator.kept_ratings()
    if aggregator.aced and not aggregator.keep_aced:
        console.print(f"{len(aggregator.aced)} scripts that every model aces are set aside")
    if kept:
        print_tables(console, _scores(kept))
    for kind in (STATELESS, STATEFUL, ""):
        mine = [one for one in task_scores(kept) if one.kind == kind]
        if len(mine) > 1:
            print_tables(console, _tasks(kind, mine))
    if aggregator.pairs():
        print_tables(console, _pairs(aggregator))
    if scored := aggregator.attributes.figures():
        print_tables(console, _attributes(scored))
    unusable = Table("no usable reply of", "because", figures=("scripts",))
    for (model, reason), count in aggregator.unusable_replies.most_common():
        unusable.add_row(model, reason, str(count))
    abstained = Table("rating abstained because", figures=("ratings",))
    for reason, count in aggregator.abstentions.most_common():
        abstained.add_row(reason, str(count))
    print_tables(console, unusable, abstained)


def _scores(kept: Sequence[Rated]) -> Table:
    table = Table("model", "scripts of", figures=("n", "rated", "mean", "95 %"))
    for one in scores(kept):
        table.add_row(one.model, one.group, str(one.scripts), str(one.mean.n), *_mean(one.mean))
    return table


def _tasks(kind: str, found: Sequence[TaskScore]) -> Table:
    listed = min(LISTED_TASKS, len(found) // 2)
    table = Table("hardest", "mean", "easiest", "mean", title=f"{kind} tasks".strip())
    for hard, easy in zip(found[:listed], found[::-1][:listed], strict=True):
        table.add_row(hard.task, _mean(hard.mean)[0], easy.task, _mean(easy.mean)[0])
    return table


def _pairs(aggregator: DialoguesAggregator) -> Table:
    heads = ("win", "tie", "lose", "abstained", "difference")
    table = Table("first", "second", "judge", "scripts of", figures=heads)
    for (first, second, judge, group), count in aggregator.pairs().items():
        difference = percent(count.difference, 2, signed=True)
        numbers = (count.win, count.tie, count.lose, count.abstained)
        table.add_row(first, second, judge, group, *map(str, numbers), difference)
    return table


def _attributes(found: Sequence[AttributeScore]) -> Table:
    heads = ("replies", "scored", "mean", "95 %", f"above {HIGH}")
    table = Table("model", "scored for", "by", figures=heads)
    for one in found:
        shares = percent(one.coverage, 0), *_mean(one.mean), percent(one.high_share)
        table.add_row(one.model, named(one.attribute, ABSENT), one.judge, str(one.replies), *shares)
    return table


def _mean(mean: Mean) -> tuple[str, str]:
    return number(mean.value, 2), interval(mean.lower, mean.upper, 2)
