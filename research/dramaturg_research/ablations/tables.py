"""Tables of variants."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import VerdictFigures
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.summaries.decision_accuracy import ALL
from dramaturg.tables.model import ABSENT, SHARES, Cell, Column, Table, columns, estimate_cell, figure
from dramaturg_research.ablations.agreement import VariantFigures, criteria_of, describe_agreement

SHORT = {
    "no_missing_steps": "NM",
    "no_redundant_steps": "NR",
    "no_duplicate_steps": "ND",
    "executable": "EX",
    "satisfies_constraints": "SC",
    "completes_goal": "CG",
    "order_correct": "OC",
}
"""The criteria as the paper's tables name them."""


def show_variants(console: Terminal, figures: Sequence[VariantFigures], compared_with: str) -> None:
    """Prints the agreement, the rate of PASS, how many verdicts decide, and the calls.

    Args:
        console: Where to print.
        figures: The variants, the base first.
        compared_with: What the agreement is with.
    """
    criteria = criteria_of(figures)
    if any(one.agreement for one in figures):
        title = f"verdicts equal to {compared_with}, of those that decide"
        heads = ("majority", "kappa", "MSE", "over")
        print_tables(console, _table(title, figures, criteria, _agreement, heads, _overall))
    call_heads = ("samples", "failed", "bought", "from the ledger", "abstained because")
    calls = Table("calls and abstentions", columns("variant", figures=call_heads))
    for one in figures:
        summary = one.summary
        reasons = sorted(summary.abstentions_by_reason.items(), key=lambda reason: (-reason[1], reason[0]))
        counts = (
            summary.sample_count,
            summary.failed_sample_count,
            summary.usage.provider_call_count,
            summary.usage.cache_hit_count,
        )
        calls.add_row(
            one.name, *map(str, counts), ", ".join(f"{count} {reason}" for reason, count in reasons)
        )
    print_tables(
        console,
        _table("PASS, of the verdicts that decide", figures, criteria, _passes),
        _table("verdicts that decide", figures, criteria, _decided),
        calls,
    )


def _table(
    title: str,
    figures: Sequence[VariantFigures],
    criteria: Sequence[str],
    cell: Callable[[VariantFigures, str], Cell],
    heads: Sequence[str] = (),
    cells: Callable[[VariantFigures], Sequence[Cell | str]] = lambda _: (),
) -> Table:
    """A row for each variant, a column for each criterion and for all of them, and those of the heads."""
    names: Sequence[str | Column] = (
        *(SHORT.get(name, name) for name in criteria),
        Column(ALL, interval=SHARES),
        *heads,
    )
    table = Table(title, columns("variant", figures=names))
    for one in figures:
        table.add_row(one.name, *(cell(one, name) for name in [*criteria, ALL]), *cells(one))
    return table


def _overall(figures: VariantFigures) -> Sequence[Cell | str]:
    """The figures beside the agreement of all verdicts; the last is the number of criteria."""
    group = figures.agreement.get(ALL)
    if group is None:
        return (ABSENT,) * 4
    described = describe_agreement(group)
    return (
        estimate_cell(group.majority_baseline),
        *(
            Cell(figure(described[name], 3), described[name])
            for name in ("cohen_kappa", "mean_squared_error")
        ),
        f"{len(figures.decided_criteria)} criteria",
    )


def _agreement(figures: VariantFigures, name: str) -> Cell:
    group = figures.agreement.get(name)
    return Cell(ABSENT) if group is None else estimate_cell(group.accuracy_when_answered)


def _passes(figures: VariantFigures, name: str) -> Cell:
    return estimate_cell(_verdicts(figures, name).pass_rate)


def _decided(figures: VariantFigures, name: str) -> Cell:
    counts = _verdicts(figures, name)
    decided, total = counts.pass_count + counts.fail_count, counts.verdict_count
    return Cell(f"{decided}/{total}", decided, judged=decided, total=total)


def _verdicts(figures: VariantFigures, name: str) -> VerdictFigures:
    return figures.verdicts.get(name, VerdictFigures())
