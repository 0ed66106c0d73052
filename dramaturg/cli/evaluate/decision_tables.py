"""Tables of the choices of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.cli.cells import ABSENT, interval, model_name, named, number
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.summaries.decision_accuracy import ALL, Figures
from dramaturg.summaries.decisions import DecisionsAggregator

_DIGITS = 2


def show_decisions(console: Terminal, aggregator: DecisionsAggregator) -> None:
    """Prints accuracy, confusion, position bias and abstentions."""
    for setup, figures in groupby(aggregator.figures, key=lambda one: tuple(one.setup.values())):
        listed = list(figures)
        print_tables(console, _accuracy(_title(setup), listed))
        for one in listed:
            if (one.format, one.level) == (ALL, ALL):
                print_tables(console, _confusion(one))
    if aggregator.missing_figures:
        console.print(f"no figures: {aggregator.missing_figures}", style="yellow")
    if aggregator.unscored:
        console.print(f"{aggregator.unscored} choices are not scored: their right choice is not known")
    if aggregator.bias:
        print_tables(console, _bias(aggregator))
    abstained = Table("abstained because", figures=("choices",))
    for reason, count in aggregator.abstentions.most_common():
        abstained.add_row(reason, str(count))
    print_tables(console, abstained)


def _title(setup: Sequence[str]) -> str:
    model, *how = setup
    return ", ".join((model_name(model), *how))


def _accuracy(title: str, figures: Sequence[Figures]) -> Table:
    macro = any(one.group.HasField("macro_accuracy") for one in figures)
    # People were asked about the released data of Choice-75 alone; without it the column is left out.
    people = any(one.human is not None for one in figures)
    heads = ["n", "answered", "accuracy", "95 %", "abstained wrong", "abstained right", "majority"]
    heads += [*(["people (Choice-75)"] if people else []), *(["macro"] if macro else [])]
    table = Table("format", "level", figures=heads, title=title)
    for one in figures:
        group = one.group
        cells = [
            str(group.item_count),
            str(group.answered_count),
            _value(group.accuracy_when_answered),
            _interval(group.accuracy_when_answered),
            _value(group.accuracy_abstentions_wrong),
            _number(one.at_best),
            _value(group.majority_baseline),
            *([_number(one.human)] if people else []),
        ]
        if macro:
            cells.append(_value(group.macro_accuracy))
        table.add_row(named(one.format), named(one.level), *cells)
    return table


def _confusion(figures: Figures) -> Table:
    cells = {(cell.gold, cell.predicted): cell.count for cell in figures.group.confusion}
    predicted = list(_ordered({label for _, label in cells}))
    table = Table("right \\ chosen", figures=[label or "(abstained)" for label in predicted])
    for gold in _ordered({label for label, _ in cells}):
        table.add_row(gold, *(str(cells.get((gold, label), 0)) for label in predicted))
    return table


def _ordered(labels: set[str]) -> Iterator[str]:
    """The options, then either, then abstentions."""
    yield from sorted(labels, key=lambda label: (not label, not label.startswith("option"), label))


def _bias(aggregator: DecisionsAggregator) -> Table:
    heads = ("decisions", "answered twice", "same choice", "chose the first shown")
    table = Table("model", "prompt", figures=heads, title="both orders")
    for (model, prompt), bias in aggregator.bias.items():
        shares = bias.describe()
        table.add_row(
            model_name(model),
            prompt,
            str(bias.pairs),
            str(bias.answered),
            _number(shares["same_share"]),
            _number(shares["first_shown_share"]),
        )
    return table


def _value(found: Estimate) -> str:
    return number(found.value if found.HasField("value") else None, _DIGITS)


def _interval(found: Estimate) -> str:
    known = found.HasField("lower") and found.HasField("upper")
    return interval(found.lower, found.upper, _DIGITS) if known else ABSENT


def _number(value: float | None) -> str:
    return number(value, _DIGITS)
