"""The figures of ABSEval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, VerdictFigures
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.plots.figures import BarChart, Bounds, Figure, HeatMap, LineChart, RankChart, counted
from dramaturg.results.variants import BASE
from dramaturg.tables.model import Cell, Table
from dramaturg_research.reproduction.abseval.printed import ALL, NAMES
from dramaturg_research.reproduction.abseval.rates import (
    MODEL_GROUP,
    SHORT,
    SIZES,
    Rates,
    agreement_of,
    bounds_of,
    find_figures,
    pass_rate,
    rate_of,
    tag_values,
)
from dramaturg_research.reproduction.abseval.tables import AGENTS, Agreement
from dramaturg_research.reproduction.cells import NOT_SAMPLED, estimate

_RATE, _AGREEMENT = "share of scripts that pass", "share of equal verdicts"
_OWN, _PAPER = "this run", "paper"
_ALL = "ALL (paper)"
_CELLS = "Each cell: the share of the verdicts on the scripts of a topic that pass, over the seven criteria."


def make_figures(
    summaries: Mapping[str, Summary],
    rates: Mapping[str, Rates],
    printed: Rates,
    heat_map: Mapping[str, Any] | None,
    recovered: Mapping[str, Any] | None,
    topics: Sequence[str],
) -> Iterator[Figure]:
    """The figures of a run beside those of the paper; without a run those of the paper.

    Args:
        summaries: The figures of each run.
        rates: The rates of each run.
        printed: The rates of Table 5.
        heat_map: The values of Figure 9. None: not known.
        recovered: The values of Figures 2, 4, 5 and 7. None: not known.
        topics: The topics of the tasks of the run.
    """
    own = rates.get(AGENTS, {})
    printed_names = {f"{model} (paper)": values for model, values in printed.items()}
    named = {**own, **printed_names}
    if topics:
        counts = Counter(topic or "(none)" for topic in topics)
        yield BarChart(
            "figure-2-run",
            "Figure 2: Tasks of this run by topic",
            [topic for topic, _ in counts.most_common()],
            {"tasks": [count for _, count in counts.most_common()]},
            value_name="tasks",
            notes=[NOT_SAMPLED],
        )
    if recovered is not None:
        yield _topics(recovered["fig_pie_topics"])
        gold = recovered["fig4_radar_gold_answer.svg"]
        shown = {name: gold[name] for name in ("with gold", "without gold")}
        title = "Figure 4: Agreement with people by gold answer, as printed"
        yield _criteria_bars("figure-4", title, shown, _AGREEMENT, printed_from=0)
        line = recovered["fig6_line_plot.svg"]
        shown = {name: line[name] for name in ("ABSEval", "Single Agent")}
        title = "Figure 7: Agreement with people by mechanism, as printed"
        yield _criteria_bars("figure-7", title, shown, _AGREEMENT, printed_from=0)
    sizes = _sizes(
        summaries.get(AGENTS),
        recovered["fig5_heat_size_by_metric"] if recovered is not None else {"order": ()},
    )
    if sizes.series:
        yield sizes
    if summaries:
        yield from _topic_maps(summaries[AGENTS], list(own))
        yield _overall(summaries[AGENTS])
    else:
        values = [float(value) for value in ALL.split()]
        title = "Figure 10: Accuracy of all models, as printed"
        yield _criteria_bars("figure-10", title, {_ALL: values}, printed=[_ALL])
    if heat_map is not None:
        models = list(next(iter(heat_map.values())))
        yield HeatMap(
            "figure-9-paper",
            "Figure 9: Rates by topic and model, as printed",
            list(heat_map),
            {model: [row.get(model) for row in heat_map.values()] for model in models},
            value_name=_RATE,
            limits=(0, 1),
            notes=[
                _CELLS,
                f"By these values the weakest topic is {_weakest(heat_map)}; the text says Health.",
            ],
        )
    cells = {
        (model, place): _cell(find_figures(summaries[AGENTS], criterion, model))
        for model in own
        for place, criterion in enumerate(ABSEVAL)
    }
    for place, short in enumerate(SHORT.values()):
        # The paper orders models by the rate.
        ordered = sorted(named, key=lambda name: -(named[name][place] or 0))
        groups = {_OWN: [name for name in ordered if name in own], _PAPER: [*printed_names]}
        yield BarChart(
            f"figure-11-{short.lower()}",
            counted(f"Figure 11: {NAMES[short]}", (cells[model, place] for model in own)),
            ordered,
            {
                group: [named[name][place] if name in members else None for name in ordered]
                for group, members in groups.items()
                if members
            },
            value_name=_RATE,
            limits=(0, 1),
            bounds={_OWN: [cells[name, place].bounds if name in own else None for name in ordered]},
            printed=[_PAPER],
        )


def ranks_figure(ranks: Table) -> RankChart:
    """The rank of each model by each metric, from the table of Figure 6."""
    return RankChart(
        "figure-6",
        ranks.caption,
        [column.name for column in ranks.columns[1:]],
        {row.cells[0].text: [cell.value for cell in row.cells[1:]] for row in ranks.rows},
        value_name="rank",
    )


# Figure 4 has one judge with and without a gold answer, Figure 7 the agents and one judge.
_CONTRASTS = {
    "figure-4": (
        "Figure 4: Agreement with {} by gold answer",
        ("single-judge-with-gold-answer", "single-judge"),
    ),
    "figure-7": ("Figure 7: Agreement with {} by mechanism", (BASE, "single-judge")),
}


def ablation_figures(summary: Summary) -> Iterator[BarChart]:
    """The agreement of variants with the base."""
    for name, (title, variants) in _CONTRASTS.items():
        found = {
            one: [agreement_of(summary, one, criterion) for criterion in ABSEVAL]
            for one in variants
            if one != BASE
        }
        yield _agreement_bars(f"{name}-ablations", title.format("the base"), found)


def people_figures(agreement: Agreement) -> Iterator[BarChart]:
    """The agreement of variants with people."""
    for name, (title, variants) in _CONTRASTS.items():
        found = {
            one: [
                agreement[one][criterion].accuracy_when_answered if criterion in agreement[one] else None
                for criterion in ABSEVAL
            ]
            for one in variants
            if one in agreement
        }
        yield _agreement_bars(f"{name}-people", title.format("people"), found)


def _agreement_bars(name: str, title: str, found: Mapping[str, Sequence[Estimate | None]]) -> BarChart:
    cells = {one: [estimate(cell, 3) for cell in estimates] for one, estimates in found.items()}
    if len(cells) == 1:
        # A single series has no legend.
        title = f"{title}, {next(iter(cells))}"
    title = counted(title, chain(*cells.values()))
    return _criteria_bars(
        name,
        title,
        {one: [cell.value for cell in made] for one, made in cells.items()},
        _AGREEMENT,
        {one: [cell.bounds for cell in made] for one, made in cells.items()},
    )


def _criteria_bars(
    name: str,
    title: str,
    series: Mapping[str, Sequence[float | None]],
    value_name: str = _RATE,
    bounds: Mapping[str, Bounds] = MappingProxyType({}),
    printed: Sequence[str] = (),
    printed_from: int | None = None,
) -> BarChart:
    return BarChart(
        name,
        title,
        list(SHORT.values()),
        series,
        value_name=value_name,
        limits=(0, 1),
        bounds=bounds,
        printed=printed,
        printed_from=printed_from,
    )


def _topics(counts: Mapping[str, int]) -> BarChart:
    topics = {topic: count for topic, count in counts.items() if topic != "total"}
    return BarChart(
        "figure-2",
        "Figure 2: Tasks of MCScript by topic, as printed",
        list(topics),
        {"tasks": list(topics.values())},
        value_name="tasks",
        printed=["tasks"],
    )


def _sizes(summary: Summary | None, recovered: Mapping[str, Any]) -> HeatMap:
    own = {}
    cells: list[Cell] = []
    for size in SIZES:
        found = [
            find_figures(summary or Summary(), criterion, **{MODEL_GROUP: size}) for criterion in ABSEVAL
        ]
        if any(found):
            own[size] = [rate_of(one) for one in found]
            cells += map(_cell, found)
    printed = {
        f"{size} (paper)": [recovered[short][place] for short in SHORT.values()]
        for place, size in enumerate(recovered["order"])
    }
    return HeatMap(
        "figure-5",
        counted("Figure 5: Rates by model size and criterion", cells),
        list(SHORT.values()),
        {**own, **printed},
        value_name=_RATE,
        limits=(0, 1),
    )


def _topic_maps(summary: Summary, models: Sequence[str]) -> Iterator[HeatMap]:
    topics = tag_values(summary, "topic")
    cells = {
        model: [_cell(find_figures(summary, "", model, topic=topic)) for topic in topics] for model in models
    }
    yield HeatMap(
        "figure-9",
        counted("Figure 9: Rates by topic and model", chain(*cells.values())),
        topics,
        {model: [cell.value for cell in line] for model, line in cells.items()},
        value_name=_RATE,
        limits=(0, 1),
        notes=[_CELLS],
    )


def _cell(found: VerdictFigures | None) -> Cell:
    return estimate(pass_rate(found), 3)


def _weakest(heat_map: Mapping[str, Any]) -> str:
    """The topic of the smallest mean over the models, of which each topic has all."""
    return min(heat_map, key=lambda topic: sum(heat_map[topic].values()))


def _overall(summary: Summary) -> BarChart:
    figures = [find_figures(summary, criterion) for criterion in ABSEVAL]
    return _criteria_bars(
        "figure-10",
        counted("Figure 10: Accuracy of all models", map(_cell, figures)),
        {"ALL": [rate_of(one) for one in figures], _ALL: [float(value) for value in ALL.split()]},
        bounds={"ALL": [bounds_of(one) for one in figures]},
        printed=[_ALL],
    )


def steps_figure(table: Table) -> LineChart:
    """The rates by the number of steps, from the table of Figure 12."""
    names = [column.name for column in table.columns[2:]]
    return LineChart(
        "figure-12",
        counted(table.caption, (cell for row in table.rows for cell in row.cells[2:])),
        [row.cells[0].text for row in table.rows],
        {name: [row.cells[place].value for row in table.rows] for place, name in enumerate(names, 2)},
        value_name=_RATE,
        label_name="steps of the script",
        limits=(0, 1),
        bounds={name: [row.cells[place].bounds for row in table.rows] for place, name in enumerate(names, 2)},
        notes=table.notes,
    )
