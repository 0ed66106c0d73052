"""Figures of choices between options (Choice-75, Tables 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from dramaturg.api.evaluation.v1.summary_pb2 import DecisionFigures, DecisionsSummary, Summary
from dramaturg.report.figures.common import percent_of, ranking_lead
from dramaturg.report.tables import (
    SHARE,
    Cell,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    interval_cell,
    matrix,
    name_cell,
    percent,
    samples_link,
)
from dramaturg.results.groups import by_grouping

ALL = "all"

show_mean = percent_of


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    setup = summary.leaderboard_measure.partition("/")[2]
    prompt = f" (prompt {setup})" if setup else ""
    return ranking_lead(
        summary,
        lambda one: f"chooses correctly in {percent(one.mean)} of {one.judged_count:,} decisions{prompt}",
        percent,
    )


def sections(summary: Summary) -> Iterator[Section]:
    """Accuracy by format and level, confusion, groups, and the effect of the options' order."""
    found = summary.decisions
    whole = [one for one in found.figures if not one.tags]
    if whole:
        yield _levels(whole)
    if whole:
        yield Section("Accuracy by format and level", list(_setups(whole)), _note(whole))
    for names, rows in by_grouping(summary.options, found.figures):
        yield _group(names, [one for one in rows if (one.format, one.level) == (ALL, ALL)])
    if found.option_orders:
        yield Section(
            "Order of the options",
            [_orders(found)],
            "Decisions put in both orders. First presented: answers that name the option shown first; 50 % "
            "without bias.",
        )
    if found.unscored_choice_count:
        unscored = f"{found.unscored_choice_count:,} choices are not scored: their right choice is not known."
        yield Section("Choices without a gold label", lines=[unscored])


def _setups(whole: Sequence[DecisionFigures]) -> Iterator[Table]:
    """The tables of each setup; folded if there are several setups."""
    setups = {setup: list(some) for setup, some in groupby(sorted(whole, key=_setup), key=_setup)}
    for setup, figures in setups.items():
        for table in (_accuracy(setup, figures), *_confusions(figures)):
            yield replace(table, folded=table.caption) if len(setups) > 1 else table


def _setup(one: DecisionFigures) -> tuple[str, str, str]:
    return one.model, one.prompt, one.order


def _name(setup: tuple[str, str, str]) -> str:
    model, prompt, order = setup
    return f"{model or 'the default model'}, prompt {prompt}, options {order}"


def _measure(one: DecisionFigures) -> str:
    return f"correct/{one.prompt}{', swapped' if one.order == 'swapped' else ''}"


def _note(figures: Sequence[DecisionFigures]) -> str:
    note = (
        "Accuracy of the answered choices. Abstained wrong and right: with every abstention wrong or right."
    )
    if any(one.HasField("human_accuracy") for one in figures):
        note += " People: the accuracy that Choice-75 states for the released data."
    return note


def _link(one: DecisionFigures, outcome: str = "") -> str:
    tags = {name: value for name, value in (("format", one.format), ("level", one.level)) if value != ALL}
    if tags.get("level") == "binary":
        del tags["level"]
    filters = {"outcome": outcome} if outcome else {}
    return samples_link({**tags, **one.tags}, model=one.model, measure=_measure(one), **filters)


def _levels(whole: Sequence[DecisionFigures]) -> Section:
    """Setup by level, over all formats: Table 3."""
    cells = {("\x1f".join(_setup(one)), one.level): one for one in whole if one.format == ALL}
    levels = list(dict.fromkeys(one.level for one in whole if one.format == ALL))
    setups = dict.fromkeys(map(_setup, whole))

    def cell(key: str, level: str) -> Cell | None:
        one = cells.get((key, level))
        return one and estimate_cell(one.accuracy.accuracy_when_answered, _link(one), heat=True)

    rows = [([name_cell(part) for part in setup], "\x1f".join(setup)) for setup in setups]
    heads = ["model", "prompt", "order"]
    return Section(
        "Accuracy by level",
        [matrix("Accuracy of answered choices by setup and level", heads, rows, levels, cell)],
        "Setups are never pooled. Binary: easy, medium and hard.",
    )


def _accuracy(setup: tuple[str, str, str], figures: Sequence[DecisionFigures]) -> Table:
    people = any(one.HasField("human_accuracy") for one in figures)
    macro = any(one.accuracy.HasField("macro_accuracy") for one in figures)
    rows = []
    for one in figures:
        group = one.accuracy
        right = one.accuracy_abstentions_right if one.HasField("accuracy_abstentions_right") else None
        cells = [
            name_cell(one.format, absent="(none)"),
            name_cell(one.level, absent="(none)"),
            count(group.item_count, _link(one)),
            count(group.answered_count),
            estimate_cell(group.accuracy_when_answered, _link(one, "fail"), heat=True),
            interval_cell(group.accuracy_when_answered, SHARE, percent_of),
            estimate_cell(group.accuracy_abstentions_wrong),
            Cell(percent_of(right)),
            estimate_cell(group.majority_baseline),
        ]
        if people:
            cells.append(Cell(percent_of(one.human_accuracy if one.HasField("human_accuracy") else None)))
        if macro:
            cells.append(estimate_cell(group.macro_accuracy))
        rows.append(cells)
    heads = ["decisions", "answered", "accuracy", "95 % interval, 0 to 100 %"]
    heads += ["abstained wrong", "abstained right", "majority"]
    heads += [*(["people"] if people else []), *(["macro"] if macro else [])]
    return Table(f"Accuracy of {_name(setup)}", columns("format", "level", figures=heads), rows, heads=2)


def _confusions(figures: Iterable[DecisionFigures]) -> Iterator[Table]:
    for one in figures:
        if (one.format, one.level) == (ALL, ALL) and one.accuracy.confusion:
            yield _confusion(one)


def _confusion(one: DecisionFigures) -> Table:
    cells = {(cell.gold, cell.predicted): cell.count for cell in one.accuracy.confusion}
    golds = _ordered({gold for gold, _ in cells})
    predicted = _ordered({label for _, label in cells})
    largest = max(cells.values(), default=1)
    rows = [
        [
            Cell(gold),
            *(
                Cell(f"{cells.get((gold, label), 0):,}", heat=cells.get((gold, label), 0) / largest)
                for label in predicted
            ),
        ]
        for gold in golds
    ]
    heads = [f"chose {label}" if label else "abstained" for label in predicted]
    caption = f"Right choice by chosen one, {_name(_setup(one))}"
    return Table(caption, columns("right", figures=heads), rows)


def _ordered(labels: set[str]) -> Sequence[str]:
    """The options, then either, then abstentions."""
    return sorted(labels, key=lambda label: (not label, not label.startswith("option"), label))


def _group(names: Sequence[str], rows: Sequence[DecisionFigures]) -> Section:
    cells = {("\x1f".join(_setup(one)), _group_name(one)): one for one in rows}
    setups = sorted({_setup(one) for one in rows})

    def cell(key: str, group: str) -> Cell | None:
        one = cells.get((key, group))
        return one and estimate_cell(one.accuracy.accuracy_when_answered, _link(one), heat=True)

    heads = [([name_cell(part) for part in setup], "\x1f".join(setup)) for setup in setups]
    across = list(dict.fromkeys(_group_name(one) for one in rows))
    title = ", ".join(names)
    caption = f"Accuracy of answered choices by setup and {title}"
    return Section(
        f"{title.capitalize()} by setup", [matrix(caption, ["model", "prompt", "order"], heads, across, cell)]
    )


def _group_name(one: DecisionFigures) -> str:
    return ", ".join(value or "(none)" for _, value in sorted(one.tags.items()))


def _orders(found: DecisionsSummary) -> Table:
    rows = [
        [
            name_cell(one.model, absent="(default)"),
            Cell(one.prompt),
            count(one.decision_count),
            count(one.answered_count),
            Cell(percent_of(one.same_share if one.HasField("same_share") else None)),
            Cell(percent_of(one.first_presented_share if one.HasField("first_presented_share") else None)),
        ]
        for one in found.option_orders
    ]
    heads = ("decisions", "answered twice", "same choice", "first presented")
    return Table("Both orders", columns("model", "prompt", figures=heads), rows, heads=2)
