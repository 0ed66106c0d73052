"""Tables of verdicts on scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from dramaturg.api.evaluation.v1.summary_pb2 import Summary, VariantAgreement, VerdictFigures
from dramaturg.cli.cells import ABSENT, named, percent
from dramaturg.cli.summaries.cells import abstention_table, share_interval_cell, value_cell
from dramaturg.cli.summaries.panels import panel_table
from dramaturg.cli.summaries.perturbations import show_perturbations
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.results.groups import by_grouping

_HEADS = ("PASS", "FAIL", "ABSTAIN", "PASS of judged", "95 % interval")


def show(console: Terminal, summary: Summary) -> None:
    """Prints the verdicts by criterion, by model, by model and criterion, and by group; then panels."""
    figures = summary.scripts.figures
    whole = [one for one in figures if not one.tags]
    pooled = [one for one in whole if one.all_models]
    tables = [_table(["criterion"], pooled, lambda one: [one.criterion or "all"])]
    models = [one for one in whole if not one.all_models]
    if len({one.model for one in models}) > 1:
        by_model = [one for one in models if not one.criterion]
        tables += [_table(["model"], by_model, lambda one: [named(one.model)]), _matrix(models)]
    for names, rows in by_grouping(summary.options, [one for one in figures if one.tags]):
        tables += _of_groups(names, rows)
    tables.append(panel_table(summary.scripts.panels))
    tables.append(abstention_table("abstained because", summary.abstentions_by_reason, "verdicts"))
    missing = summary.scripts.gold_answers.missing_by_reason
    tables.append(abstention_table("no gold answer because", missing, "samples"))
    print_tables(console, *tables)
    if summary.scripts.variants:
        print_tables(console, _variants(summary.scripts.variants))
    if summary.scripts.HasField("perturbations"):
        show_perturbations(console, summary.scripts.perturbations)


def _variants(found: Sequence[VariantAgreement]) -> Table:
    """The share of verdicts that equal those of the base, by variant and criterion."""
    shares = {(one.variant, one.criterion): value_cell(one.agreement.accuracy_when_answered) for one in found}
    criteria = list(dict.fromkeys(one.criterion for one in found if one.criterion))
    table = Table(
        "variant", figures=(*criteria, "all"), title="verdicts equal to the base's, of those that decide"
    )
    for variant in dict.fromkeys(one.variant for one in found):
        table.add_row(variant, *(shares.get((variant, name), ABSENT) for name in (*criteria, "")))
    return table


def _of_groups(names: Sequence[str], rows: Sequence[VerdictFigures]) -> Iterable[Table]:
    """The verdicts by group, then the share of PASS by group and criterion, and by group and model."""
    pooled = [one for one in rows if one.all_models]
    yield _table(names, [one for one in pooled if not one.criterion], partial(_values, names))
    yield _group_matrix(names, [one for one in pooled if one.criterion], lambda one: one.criterion)
    by_model = [one for one in rows if not one.all_models and not one.criterion]
    if len({one.model for one in by_model}) > 1:
        yield _group_matrix(names, by_model, lambda one: named(one.model))


def _group_matrix(
    names: Sequence[str], rows: Sequence[VerdictFigures], column: Callable[[VerdictFigures], str]
) -> Table:
    columns = list(dict.fromkeys(map(column, rows)))
    shares = {(tuple(_values(names, one)), column(one)): _share(one) for one in rows}
    table = Table(*names, figures=columns, title="PASS of judged")
    for group in dict.fromkeys(group for group, _ in shares):
        table.add_row(*group, *(shares.get((group, name), ABSENT) for name in columns))
    return table


def _values(names: Sequence[str], one: VerdictFigures) -> Sequence[str]:
    return [named(one.tags[name]) for name in names]


def _table(
    heads: Sequence[str],
    rows: Iterable[VerdictFigures],
    names: Callable[[VerdictFigures], Sequence[str]],
) -> Table:
    table = Table(*heads, figures=_HEADS)
    for one in rows:
        abstained = one.verdict_count - one.pass_count - one.fail_count
        counts = (one.pass_count, one.fail_count, abstained)
        table.add_row(*names(one), *map(str, counts), _share(one), share_interval_cell(one.pass_rate))
    return table


def _matrix(figures: Sequence[VerdictFigures]) -> Table:
    criteria = list(dict.fromkeys(one.criterion for one in figures if one.criterion))
    shares = {(one.model, one.criterion): _share(one) for one in figures}
    table = Table("model", figures=criteria, title="PASS of judged")
    for model in dict.fromkeys(one.model for one in figures):
        table.add_row(named(model), *(shares.get((model, criterion), ABSENT) for criterion in criteria))
    return table


def _share(one: VerdictFigures) -> str:
    return percent(one.pass_rate.value if one.pass_rate.HasField("value") else None)
