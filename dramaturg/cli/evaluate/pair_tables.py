"""Tables of the agreement of every method with human labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dramaturg.cli.cells import ABSENT, estimated, named, number, p_value
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.summaries.texts import TextsAggregator

_COEFFICIENTS = ("pearson", "spearman", "kendall")


def show_pairs(console: Terminal, aggregator: TextsAggregator) -> None:
    """Prints accuracy and correlations by method, Williams' test, accuracy by tag, and what went wrong."""
    figures = aggregator.figures
    if figures.get("methods"):
        print_tables(console, _methods(figures["methods"]))
        unlabelled = len(aggregator.pairs) - figures["labelled"]
        if unlabelled:
            console.print(f"{unlabelled} pairs without a preference of people are in no figure")
    if williams := figures.get("williams"):
        _show_williams(console, williams)
    for tag, values in figures.get("by_tag", {}).items():
        print_tables(console, _by_tag(tag, values))
    for reason, count in aggregator.failures.most_common():
        console.print(f"{count} comparisons: {reason}", style="yellow")
    for problem in aggregator.problems:
        console.print(problem, style="yellow")


def _methods(methods: Mapping[str, Any]) -> Table:
    table = Table("method", figures=("accuracy", "answered", "Pearson", "Spearman", "Kendall"))
    for method, found in methods.items():
        correlation = found.get("correlation", {})
        why = correlation.get("undefined", {})
        table.add_row(
            method,
            estimated(found["accuracy"], found["accuracy_interval"], "nothing was answered"),
            f"{found['answered']} of {found['n']}",
            *(
                estimated(correlation.get(name), correlation.get(f"{name}_interval"), why.get(name, ""))
                for name in _COEFFICIENTS
            ),
        )
    return table


def _show_williams(console: Terminal, williams: Mapping[str, Any]) -> None:
    best = williams["best_baseline"]
    if not williams["tests"]:
        console.print(f"best baseline by Pearson: {best}")
        return
    title = f"against {best}, the best baseline: t above 0 says that the method goes better with people"
    table = Table("method", figures=("Williams t", "p", "n"), title=title)
    for test in williams["tests"]:
        table.add_row(test["first"], number(test["williams_t"]), p_value(test["williams_p"]), str(test["n"]))
    print_tables(console, table)


def _by_tag(tag: str, values: Mapping[str, Mapping[str, Any]]) -> Table:
    methods = list(dict.fromkeys(method for found in values.values() for method in found))
    table = Table(tag, figures=methods)
    for value, found in sorted(values.items()):
        table.add_row(named(value), *(_share(found.get(method)) for method in methods))
    return table


def _share(found: Mapping[str, Any] | None) -> str:
    if found is None or found["accuracy"] is None:
        return ABSENT
    return f"{number(found['accuracy'])} of {found['answered']}"
