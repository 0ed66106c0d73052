"""Figures of choices between options (Choice-75, Tables 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from dramaturg.api.evaluation.v1.summary_pb2 import DecisionFigures, DecisionsSummary, Summary
from dramaturg.results.groups import by_grouping
from dramaturg.tables.common import ranking_lead
from dramaturg.tables.model import (
    SHARES,
    Cell,
    Column,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    matrix,
    name_cell,
    optional,
    percent,
    percent_of,
    samples_link,
    share_cell,
)

ALL = "all"

show_mean = percent_of


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    setup = summary.leaderboard_measure.partition("/")[2]
    prompt = f" (prompt {setup})" if setup else ""
    return ranking_lead(
        summary,
        lambda one: f"chooses correctly in {percent(one.mean)} of {one.judged_count:,} decisions{prompt}",
        percent_of,
    )


def sections(summary: Summary) -> Iterator[Section]:
    """Accuracy by format and level, confusion, groups, and the effect of the options' order."""
    found = summary.decisions
    whole = [one for one in found.figures if not one.tags]
    if whole:
        yield _levels(whole)
        yield Section("Accuracy by format and level", list(_setups(whole)), _note(whole))
    for names, rows in by_grouping(summary.options, found.figures):
        yield _group(names, rows)
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
        names = ["format", "level"]
        table = _accuracy(f"Accuracy of {_name(setup)}", names, figures, lambda one: [one.format, one.level])
        for made in (table, *_confusions(figures)):
            made.folded = made.caption if len(setups) > 1 else ""
            yield made


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


def _accuracy(
    caption: str,
    names: Sequence[str],
    figures: Sequence[DecisionFigures],
    named: Callable[[DecisionFigures], Sequence[str]],
) -> Table:
    people = any(one.HasField("human_accuracy") for one in figures)
    macro = any(one.accuracy.HasField("macro_accuracy") for one in figures)
    heads = [
        Column("decisions"),
        Column("answered"),
        Column("accuracy", interval=SHARES),
        Column("abstained wrong", detail=True),
        Column("abstained right", detail=True),
        Column("majority"),
        # The paper states the accuracy of people for the released data alone.
        *([Column("people")] if people else []),
        *([Column("macro")] if macro else []),
    ]
    table = Table(caption, columns(*names, figures=heads))
    for one in figures:
        group = one.accuracy
        table.add_row(
            *(name_cell(name, absent="(none)") for name in named(one)),
            count(group.item_count, _link(one)),
            count(group.answered_count),
            estimate_cell(group.accuracy_when_answered, _link(one, "fail"), heat=True),
            estimate_cell(group.accuracy_abstentions_wrong),
            share_cell(optional(one, "accuracy_abstentions_right")),
            estimate_cell(group.majority_baseline),
            *([share_cell(optional(one, "human_accuracy"))] if people else []),
            *([estimate_cell(group.macro_accuracy)] if macro else []),
        )
    return table


def _confusions(figures: Iterable[DecisionFigures]) -> Iterator[Table]:
    for one in figures:
        if (one.format, one.level) == (ALL, ALL) and one.accuracy.confusion:
            yield _confusion(one)


def _confusion(one: DecisionFigures) -> Table:
    cells = {(cell.gold, cell.predicted): cell.count for cell in one.accuracy.confusion}
    golds = _ordered({gold for gold, _ in cells})
    predicted = _ordered({label for _, label in cells})
    largest = max(cells.values(), default=1)
    heads = [f"chose {label}" if label else "abstained" for label in predicted]
    table = Table(f"Right choice by chosen one, {_name(_setup(one))}", columns("right", figures=heads))
    for gold in golds:
        numbers = [cells.get((gold, label), 0) for label in predicted]
        table.add_row(gold, *(Cell(f"{n:,}", n, heat=n / largest) for n in numbers))
    return table


def _ordered(labels: set[str]) -> Sequence[str]:
    """The options, then either, then abstentions."""
    return sorted(labels, key=lambda label: (not label, not label.startswith("option"), label))


def _group(names: Sequence[str], rows: Sequence[DecisionFigures]) -> Section:
    whole = [one for one in rows if (one.format, one.level) == (ALL, ALL)]
    cells = {("\x1f".join(_setup(one)), _group_name(one)): one for one in whole}
    setups = sorted({_setup(one) for one in whole})

    def cell(key: str, group: str) -> Cell | None:
        one = cells.get((key, group))
        return one and estimate_cell(one.accuracy.accuracy_when_answered, _link(one), heat=True)

    heads = [([name_cell(part) for part in setup], "\x1f".join(setup)) for setup in setups]
    across = list(dict.fromkeys(_group_name(one) for one in whole))
    title = ", ".join(names)
    caption = f"Accuracy of answered choices by setup and {title}"
    setup = ["model", "prompt", "order"]
    listed = _accuracy(
        f"{caption}, with intervals",
        [*setup, *names],
        sorted(whole, key=_setup),
        lambda one: [*_setup(one), *(one.tags[name] for name in names)],
    )
    listed.folded = "with intervals"
    return Section(f"{title.capitalize()} by setup", [matrix(caption, setup, heads, across, cell), listed])


def _group_name(one: DecisionFigures) -> str:
    return ", ".join(value or "(none)" for _, value in sorted(one.tags.items()))


def _orders(found: DecisionsSummary) -> Table:
    heads = ("decisions", "answered twice", "same choice", "first presented")
    table = Table("Both orders", columns("model", "prompt", figures=heads))
    for one in found.option_orders:
        table.add_row(
            name_cell(one.model, absent="(default)"),
            one.prompt,
            count(one.decision_count),
            count(one.answered_count),
            share_cell(optional(one, "same_share"), one.answered_count, one.decision_count),
            share_cell(optional(one, "first_presented_share"), one.answered_count, one.decision_count),
        )
    return table
