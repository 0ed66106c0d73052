"""Prints how far every method agrees with people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dramaturg.cli.pairs.tally import PairsTally

_COEFFICIENTS = ("pearson", "spearman", "kendall")


def show_pairs(console: Console, tally: PairsTally) -> None:
    """Prints accuracy and correlations by method, Williams' test, accuracy by tag, and what went wrong."""
    figures = tally.figures
    if figures.get("methods"):
        console.print(_methods(figures["methods"]))
        unlabelled = len(tally.pairs) - figures["labelled"]
        if unlabelled:
            console.print(f"{unlabelled} pairs without a preference of people are in no figure")
    if williams := figures.get("williams"):
        _show_williams(console, williams)
    for tag, values in figures.get("by_tag", {}).items():
        console.print(_by_tag(tag, values))
    for reason, count in tally.failures.most_common():
        console.print(f"{count} comparisons: {reason}", style="yellow", markup=False, highlight=False)
    for problem in tally.problems:
        console.print(problem, style="yellow", markup=False, highlight=False)


def _methods(methods: Mapping[str, Any]) -> Table:
    table = Table("method", box=None)
    for name in ("accuracy", "answered", "Pearson", "Spearman", "Kendall"):
        table.add_column(name, justify="right")
    for method, found in methods.items():
        correlation = found.get("correlation", {})
        table.add_row(
            escape(method),
            _with_interval(found["accuracy"], found["accuracy_interval"]),
            f"{found['answered']} of {found['n']}",
            *(
                _with_interval(correlation.get(name), correlation.get(f"{name}_interval"))
                for name in _COEFFICIENTS
            ),
        )
    return table


def _show_williams(console: Console, williams: Mapping[str, Any]) -> None:
    best = williams["best_baseline"]
    if not williams["tests"]:
        console.print(f"best baseline by Pearson: {best}", markup=False, highlight=False)
        return
    table = Table(f"against {escape(best)}", box=None)
    for name in ("Williams t", "p", "n"):
        table.add_column(name, justify="right")
    for test in williams["tests"]:
        table.add_row(
            escape(test["tested"]), _number(test["williams_t"]), _number(test["williams_p"]), str(test["n"])
        )
    console.print(table)


def _by_tag(tag: str, values: Mapping[str, Mapping[str, Any]]) -> Table:
    methods = list(dict.fromkeys(method for found in values.values() for method in found))
    table = Table(escape(tag), *map(escape, methods), box=None)
    for value, found in sorted(values.items()):
        table.add_row(escape(value) or "(none)", *(_share(found.get(method)) for method in methods))
    return table


def _share(found: Mapping[str, Any] | None) -> str:
    if found is None or found["accuracy"] is None:
        return "-"
    return f"{found['accuracy']:.3f} of {found['answered']}"


def _with_interval(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None:
        return "undefined"
    return (
        _number(value) if interval is None else escape(f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]")
    )


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
