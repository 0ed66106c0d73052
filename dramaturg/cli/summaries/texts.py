"""Tables of texts judged by a rubric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from dramaturg.api.evaluation.v1.summary_pb2 import ScoreFigures, Summary, VerdictFigures
from dramaturg.cli.cells import interval, named, percent, percent_interval
from dramaturg.cli.summaries.cells import abstention_table, interval_cell, share_interval_cell, value_cell
from dramaturg.cli.summaries.panels import panel_table
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.results.groups import Grouped, by_grouping

_VERDICTS = ("PASS", "FAIL", "ABSTAIN", "PASS of judged", "95 % interval", "with abstentions")
_SCORES = ("scored", "ABSTAIN", "mean", "95 % interval", "with abstentions")


def show(console: Terminal, summary: Summary) -> None:
    """Prints verdicts and scores by criterion, by model and criterion, and by group; then panels."""
    found = summary.texts
    pooled = [one for one in found.verdicts if not one.tags and one.all_models]
    tables = [_verdicts(["criterion"], pooled, lambda one: [one.criterion or "all"])]
    scores = [one for one in found.scores if not one.tags and one.all_models]
    tables.append(_scores(["criterion", "scale"], scores, lambda one: [one.criterion, _scale(one)]))
    by_model = [one for one in found.verdicts if not one.tags and not one.all_models]
    if len({one.model for one in by_model} | {one.model for one in found.scores if not one.all_models}) > 1:
        named_verdicts = [one for one in by_model if one.criterion]
        tables.append(
            _verdicts(["model", "criterion"], named_verdicts, lambda one: [named(one.model), one.criterion])
        )
        of_models = [one for one in found.scores if not one.tags and not one.all_models]
        tables.append(
            _scores(
                ["model", "criterion", "scale"],
                of_models,
                lambda one: [named(one.model), one.criterion, _scale(one)],
            )
        )
    grouped = [one for one in found.verdicts if one.tags and one.all_models and not one.criterion]
    for names, rows in by_grouping(summary.options, grouped):
        tables.append(_verdicts(names, rows, partial(_values, names)))
    grouped_scores = [one for one in found.scores if one.tags and one.all_models]
    for names, score_rows in by_grouping(summary.options, grouped_scores):
        tables.append(
            _scores(
                [*names, "criterion", "scale"],
                score_rows,
                lambda one, names=names: [*_values(names, one), one.criterion, _scale(one)],  # type: ignore[misc]
            )
        )
    tables.append(panel_table(found.panels))
    tables.append(abstention_table("abstained because", summary.abstentions_by_reason, "verdicts"))
    print_tables(console, *tables)


def _verdicts(
    heads: Sequence[str],
    rows: Iterable[VerdictFigures],
    names: Callable[[VerdictFigures], Sequence[str]],
) -> Table:
    table = Table(*heads, figures=_VERDICTS)
    for one in rows:
        abstained = one.verdict_count - one.pass_count - one.fail_count
        rate = one.pass_rate
        bounds = percent_interval(one.pass_rate_lowest, one.pass_rate_highest) if abstained else ""
        table.add_row(
            *names(one),
            str(one.pass_count),
            str(one.fail_count),
            str(abstained),
            percent(rate.value if rate.HasField("value") else None),
            share_interval_cell(rate),
            bounds,
        )
    return table


def _scores(
    heads: Sequence[str],
    rows: Iterable[ScoreFigures],
    names: Callable[[ScoreFigures], Sequence[str]],
) -> Table:
    table = Table(*heads, figures=_SCORES)
    for one in rows:
        abstained = one.verdict_count - one.score_count
        table.add_row(
            *names(one),
            str(one.score_count),
            str(abstained),
            value_cell(one.mean, 2),
            interval_cell(one.mean, 2),
            interval(one.mean_lowest, one.mean_highest, 2) if abstained else "",
        )
    return table


def _values(names: Sequence[str], one: Grouped) -> Sequence[str]:
    return [named(one.tags[name]) for name in names]


def _scale(one: ScoreFigures) -> str:
    return f"{one.lowest} to {one.highest}"
