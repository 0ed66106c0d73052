"""Tables of the choices of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dramaturg.api.evaluation.v1.summary_pb2 import DecisionFigures, DecisionsSummary, Summary
from dramaturg.cli.cells import model_name, named, number
from dramaturg.cli.summaries.cells import abstention_table, group_name, interval_cell, value_cell
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal

ALL = "all"
_DIGITS = 2


def show(console: Terminal, summary: Summary) -> None:
    """Prints accuracy, confusion, the effect of the options' order, and abstentions."""
    found = summary.decisions
    ordered = sorted(found.figures, key=_setup)
    for setup, figures in groupby(ordered, key=_setup):
        listed = list(figures)
        print_tables(console, _accuracy(_title(setup), listed))
        for one in listed:
            if not one.tags and (one.format, one.level) == (ALL, ALL):
                print_tables(console, _confusion(one))
    if found.unscored_choice_count:
        console.print(
            f"{found.unscored_choice_count} choices are not scored: their right choice is not known"
        )
    if found.option_orders:
        print_tables(console, _orders(found))
    print_tables(console, abstention_table("abstained because", summary.abstentions_by_reason, "choices"))


def _setup(one: DecisionFigures) -> tuple[str, ...]:
    return (one.model, one.prompt, one.order, group_name(one.tags))


def _title(setup: Sequence[str]) -> str:
    model, prompt, order, group = setup
    return ", ".join((model_name(model), prompt, order, *(() if group == ALL else (group,))))


def _accuracy(title: str, figures: Sequence[DecisionFigures]) -> Table:
    macro = any(one.accuracy.HasField("macro_accuracy") for one in figures)
    # The paper states the accuracy of people for the released data alone; without it the column is left out.
    people = any(one.HasField("human_accuracy") for one in figures)
    heads = ["n", "answered", "accuracy", "95 % interval", "abstained wrong", "abstained right", "majority"]
    heads += [*(["people (Choice-75)"] if people else []), *(["macro"] if macro else [])]
    table = Table("format", "level", figures=heads, title=title)
    for one in figures:
        group = one.accuracy
        right = one.accuracy_abstentions_right if one.HasField("accuracy_abstentions_right") else None
        human = one.human_accuracy if one.HasField("human_accuracy") else None
        cells = [
            str(group.item_count),
            str(group.answered_count),
            value_cell(group.accuracy_when_answered, _DIGITS),
            interval_cell(group.accuracy_when_answered, _DIGITS),
            value_cell(group.accuracy_abstentions_wrong, _DIGITS),
            number(right, _DIGITS),
            value_cell(group.majority_baseline, _DIGITS),
            *([number(human, _DIGITS)] if people else []),
            *([value_cell(group.macro_accuracy, _DIGITS)] if macro else []),
        ]
        table.add_row(named(one.format), named(one.level), *cells)
    return table


def _confusion(figures: DecisionFigures) -> Table:
    cells = {(cell.gold, cell.predicted): cell.count for cell in figures.accuracy.confusion}
    predicted = list(_ordered({label for _, label in cells}))
    table = Table("right \\ chosen", figures=[label or "(abstained)" for label in predicted])
    for gold in _ordered({label for label, _ in cells}):
        table.add_row(gold, *(str(cells.get((gold, label), 0)) for label in predicted))
    return table


def _ordered(labels: set[str]) -> Iterator[str]:
    """The options, then either, then abstentions."""
    yield from sorted(labels, key=lambda label: (not label, not label.startswith("option"), label))


def _orders(found: DecisionsSummary) -> Table:
    heads = ("decisions", "answered twice", "same choice", "chose the first shown")
    table = Table("model", "prompt", figures=heads, title="both orders")
    for one in found.option_orders:
        table.add_row(
            model_name(one.model),
            one.prompt,
            str(one.decision_count),
            str(one.answered_count),
            number(one.same_share if one.HasField("same_share") else None, _DIGITS),
            number(one.first_presented_share if one.HasField("first_presented_share") else None, _DIGITS),
        )
    return table
