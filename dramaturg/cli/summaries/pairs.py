"""Tables of pairs of texts: agreement of every method with people, and the effects of order and length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dramaturg.api.alignment.v1.correlation_pb2 import MeasureCorrelation
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1.summary_pb2 import (
    PairMethodFigures,
    PairsSummary,
    PairStrengths,
    Summary,
    SummaryOptions,
)
from dramaturg.cli.cells import ABSENT, DIGITS, estimated, named, number, p_value, percent
from dramaturg.cli.summaries.cells import abstention_table, value_cell
from dramaturg.cli.tables import Cell, Table, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.results.groups import by_grouping
from dramaturg.summaries.text_metrics import variant


def show(console: Terminal, summary: Summary) -> None:
    """Prints agreement with people, Williams' test, preferences with the effect of order, and groups."""
    found = summary.pairs
    whole = [one for one in found.methods if not one.tags]
    correlations = {one.measure: one for one in found.correlations.measures}
    if found.labelled_pair_count:
        print_tables(console, _agreement(whole, correlations))
        unlabelled = found.pair_count - found.labelled_pair_count
        if unlabelled:
            console.print(f"{unlabelled} pairs without a human preference are in no accuracy")
    _show_williams(console, found)
    print_tables(console, _preferences(whole), _variants(whole), *_groups(found, summary.options))
    if found.strengths:
        print_tables(console, _ratings(found.strengths))
    for one in whole:
        if one.requested_role_count and one.least_role_count < one.requested_role_count:
            console.print(
                f"{one.method}: {one.requested_role_count} subjective roles were requested; "
                f"{one.least_role_count} to {one.most_role_count} roles voted",
                style="yellow",
            )
    for reason, count in sorted(found.role_failures.items()):
        console.print(f"{count} comparisons: {reason}", style="yellow")
    print_tables(console, abstention_table("abstained because", summary.abstentions_by_reason, "judgements"))


def _agreement(rows: Iterable[PairMethodFigures], correlations: Mapping[str, MeasureCorrelation]) -> Table:
    table = Table("method", figures=("accuracy", "answered", "Pearson", "Spearman", "Kendall"))
    for one in rows:
        group, found = one.accuracy, correlations.get(one.method, MeasureCorrelation())
        table.add_row(
            one.method,
            _cell(group.accuracy),
            f"{group.answered_count} of {group.item_count}",
            *(_cell(estimate) for estimate in (found.pearson, found.spearman, found.kendall)),
        )
    return table


def _variants(rows: Iterable[PairMethodFigures]) -> Table:
    table = Table("metric", texts=("variant",), title="text metrics of each text against the source")
    for one in rows:
        if named_variant := variant(one.method):
            table.add_row(one.method, named_variant)
    return table


def _show_williams(console: Terminal, found: PairsSummary) -> None:
    if not found.best_baseline:
        return
    if not found.correlations.differences:
        console.print(f"best baseline by Pearson: {found.best_baseline}")
        return
    title = (
        f"against {found.best_baseline}, the best baseline; t above 0: the method correlates more strongly"
    )
    table = Table("method", figures=("Williams t", "p", "n"), title=title)
    for test in found.correlations.differences:
        p = test.williams_p if test.HasField("williams_p") else None
        table.add_row(test.first_measure, value_cell(test.williams_t), p_value(p), str(test.williams_t.count))
    print_tables(console, table)


def _preferences(rows: Iterable[PairMethodFigures]) -> Table:
    heads = ("first", "second", "tie", "abstained", "orders differ", "first shown", "longer")
    table = Table("method", figures=heads, title="preferences")
    for one in rows:
        counts = (one.first_count, one.second_count, one.tie_count, sum(one.abstentions_by_reason.values()))
        table.add_row(
            one.method,
            *map(str, counts),
            percent(one.inconsistent_share if one.HasField("inconsistent_share") else None),
            percent(one.first_presented_share if one.HasField("first_presented_share") else None),
            percent(one.longer_share if one.HasField("longer_share") else None),
        )
    return table


def _ratings(found: Sequence[PairStrengths]) -> Table:
    """A row a method and a column a system, those with the highest ratings by the first method first."""
    systems = dict.fromkeys(one.system for strengths in found for one in strengths.preferences.ratings)
    title = "ratings of the systems (Bradley and Terry, Elo scale) with 95 % intervals"
    table = Table("method", figures=("pairs", *systems), title=title)
    for strengths in found:
        rated = {one.system: one.elo for one in strengths.preferences.ratings}
        pairs = sum(elo.count for elo in rated.values()) // 2
        cells = (_cell(rated[name], 0) if name in rated else ABSENT for name in systems)
        table.add_row(strengths.method, str(pairs), *cells)
    return table


def _groups(found: PairsSummary, options: SummaryOptions) -> Iterable[Table]:
    """Accuracy by group and method."""
    for names, rows in by_grouping(options, found.methods):
        cells = {(tuple(one.tags[name] for name in names), one.method): one for one in rows}
        methods = list(dict.fromkeys(one.method for one in rows))
        table = Table(*names, figures=methods, title="accuracy")
        for values in dict.fromkeys(values for values, _ in cells):
            shares = (_share(cells.get((values, method))) for method in methods)
            table.add_row(*map(named, values), *shares)
        yield table


def _share(one: PairMethodFigures | None) -> str:
    if one is None or not one.accuracy.accuracy.HasField("value"):
        return ABSENT
    return f"{number(one.accuracy.accuracy.value)} of {one.accuracy.answered_count}"


def _cell(found: Estimate, digits: int = DIGITS) -> Cell:
    bounds = (found.lower, found.upper) if found.HasField("lower") else None
    return estimated(found.value if found.HasField("value") else None, bounds, found.undefined, digits)
