"""Tables of variants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from dramaturg.cli.cells import ABSENT, interval, number
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.summaries.ablation import Figures, criteria_of, describe_group, pass_rate
from dramaturg.summaries.decision_accuracy import ALL

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


def show_variants(console: Terminal, figures: Sequence[Figures], compared_with: str) -> None:
    """Prints the agreement, the rate of PASS, how many verdicts decide, and the calls.

    Args:
        console: Where to print.
        figures: The variants, the base first.
        compared_with: What the agreement is with.
    """
    criteria = criteria_of(figures)
    if any(one.groups for one in figures):
        title = f"verdicts equal to {compared_with}, of those that decide"
        heads = ("95 %", "majority", "kappa", "MSE", "over")
        print_tables(console, _table(title, figures, criteria, _agreement, heads, _overall))
    heads = ("samples", "failed", "bought", "from the ledger", "abstained because")
    calls = Table("variant", figures=heads, title="calls and abstentions")
    for one in figures:
        usage = one.aggregator.usage
        reasons = ", ".join(f"{count} {reason}" for reason, count in one.aggregator.abstentions.most_common())
        counts = (
            one.aggregator.samples,
            one.aggregator.failed_samples,
            usage.provider_call_count,
            usage.cache_hit_count,
        )
        calls.add_row(one.name, *map(str, counts), reasons)
    print_tables(
        console,
        _table("PASS, of the verdicts that decide", figures, criteria, _passes),
        _table("verdicts that decide", figures, criteria, _decided),
        calls,
    )


def _table(
    title: str,
    figures: Sequence[Figures],
    criteria: Sequence[str],
    cell: Callable[[Figures, str], str],
    heads: Sequence[str] = (),
    cells: Callable[[Figures], Sequence[str]] = lambda _: (),
) -> Table:
    """A row for each variant, a column for each criterion and for all of them, and those of the heads."""
    columns = (*(SHORT.get(name, name) for name in criteria), ALL, *heads)
    table = Table("variant", figures=columns, title=title)
    for one in figures:
        table.add_row(one.name, *(cell(one, name) for name in [*criteria, ALL]), *cells(one))
    return table


def _overall(figures: Figures) -> Sequence[str]:
    """The figures beside the agreement of all verdicts; the last is the number of criteria."""
    group = figures.groups.get(ALL)
    if group is None:
        return (ABSENT,) * 5
    described = describe_group(group)
    rate = described["rate"]
    numbers = (described[name] for name in ("majority_baseline", "cohen_kappa", "mean_squared_error"))
    return (
        interval(rate["lower"], rate["upper"]),
        *map(number, numbers),
        f"{len(figures.decided_criteria)} criteria",
    )


def _agreement(figures: Figures, name: str) -> str:
    group = figures.groups.get(name)
    return ABSENT if group is None else number(describe_group(group)["rate"]["value"])


def _passes(figures: Figures, name: str) -> str:
    return number(pass_rate(_counts(figures, name)))


def _decided(figures: Figures, name: str) -> str:
    counts = _counts(figures, name)
    return f"{counts['PASS'] + counts['FAIL']}/{counts.total()}"


def _counts(figures: Figures, name: str) -> Counter[str]:
    aggregator = figures.aggregator
    return aggregator.verdicts if name == ALL else aggregator.by_criterion.get(name, Counter())
