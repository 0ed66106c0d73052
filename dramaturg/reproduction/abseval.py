"""ABSEval (Liang et al. 2024): Tables 2 and 5 and Figures 2, 5, 6 and 9 to 12.

MCScript, the data of the paper, was not released. The tasks are those of CoScript (Yuan et al. 2023), which
are of the same kind: an abstract goal with a constraint, in a topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from dramaturg.api.alignment.v1 import accuracy_pb2, ranking_pb2
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec, ScriptsRunOptions
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, VerdictFigures
from dramaturg.datasets.json_lines import LineError
from dramaturg.formats.coscript import convert, read_file
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.reproduction.figures import BarChart, Figure, HeatMap, LineChart
from dramaturg.reproduction.paper import DataError, Omission, Reproduction
from dramaturg.reproduction.session import Session
from dramaturg.reproduction.tables import Cell, Column, Row, Table, estimate, number, words
from dramaturg.service.errors import from_rpc_error

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

ROLES = ("author", "synthesize", "critic", "execute", "commonsense", "script-judge", "alignment")
"""The roles that a gateway must serve."""

TITLE = "ABSEval: An Agent-based Framework for Script Evaluation (Liang et al. 2024)"
TASKS = ("coscript/test_data.json", "test_data.json")
"""The tasks: a released file of CoScript, below the folder of data or in it."""
RECOVERED = ("abseval/fig9_heatmap_topic_by_model_recovered.json", "abseval/fig6_fig4_recovered.json")
"""Values recovered from the figures of the paper: Figure 9; Figures 4 to 7. Optional."""

_SHORT = dict(zip(ABSEVAL, ("NM", "NR", "ND", "EX", "SC", "CG", "OC"), strict=True))
_DIGITS = 3
_AGENTS, _SINGLE = "agents", "single-judge"
_JUDGES = {
    _AGENTS: ("synthesize", "critic", "execute", "commonsense"),
    _SINGLE: ("script-judge",),
}
_ANNOTATED = 200
# Section A.4: the criteria of Figure 12.
_BY_LENGTH = ("order_correct", "executable", "no_redundant_steps", "satisfies_constraints")
_SIZE = re.compile(r"(?<![a-z0-9])(\d+(?:\.\d+)?(?:x\d+(?:\.\d+)?)?b)(?![a-z0-9])", re.IGNORECASE)
# Table 5: rank, size and the rates of the seven criteria.
_TABLE_5 = {
    "Baichuan-Chat 13B": "14 13B 0.029 0.787 0.994 0.833 0.673 0.572 0.632",
    "Baichuan2-Chat 13B": "13 13B 0.139 0.777 0.992 0.813 0.677 0.580 0.604",
    "Vicuna-v1.5 7B": "10 7B 0.044 0.811 0.995 0.876 0.713 0.611 0.696",
    "Vicuna-v1.5 13B": "9 13B 0.074 0.858 0.999 0.888 0.708 0.624 0.720",
    "LLaMa2-chat 7B": "11 7B 0.250 0.728 0.999 0.836 0.661 0.566 0.709",
    "LLaMa2-chat 13B": "7 13B 0.211 0.807 0.999 0.871 0.715 0.622 0.722",
    "LLaMa2-chat 70B": "2 70B 0.379 0.773 0.999 0.886 0.711 0.665 0.727",
    "LLaMa3-instruct 8B": "5 8B 0.103 0.880 1.000 0.889 0.758 0.681 0.725",
    "LLaMa3-instruct 70B": "1 70B 0.154 0.894 1.000 0.902 0.755 0.711 0.745",
    "Mistral-Instruct-v0.1 7B": "15 7B 0.048 0.703 0.998 0.816 0.671 0.565 0.610",
    "Mistral-Instruct-v0.2 7B": "6 7B 0.220 0.810 1.000 0.889 0.713 0.666 0.718",
    "Mistral-8x7B-Instruct-v0.1 8x7B": "4 8x7B 0.092 0.888 0.999 0.902 0.753 0.685 0.766",
    "Qwen-Chat 7B": "12 7B 0.089 0.831 0.996 0.862 0.678 0.564 0.668",
    "Qwen-Chat 14B": "8 14B 0.139 0.878 0.997 0.879 0.719 0.593 0.703",
    "Qwen-Chat 72B": "3 72B 0.129 0.913 0.998 0.900 0.763 0.654 0.763",
}
_ALL = "0.137 0.824 0.998 0.870 0.712 0.624 0.700"
# Table 2: model, mechanism, mean squared error.
_TABLE_2 = (
    ("Qwen-110-Chat", "ABSEval", "0.087"),
    ("GPT-4-turbo", "ABSEval", "0.174"),
    ("GPT-3.5-turbo", "ABSEval", "0.329"),
    ("Qwen-110-Chat", "Single-LLM", "0.257"),
    ("GPT-4-turbo", "Single-LLM", "0.29"),
    ("GPT-3.5-turbo", "Single-LLM", "0.361"),
)

# Table 3: accuracy by source of the gold answer.
_TABLE_3 = (("Answer Synthesize", "0.895", "0.965", "1.0"), ("Qwen-110B-Chat", "0.75", "0.855", "1.0"))
_TABLE_4 = (
    ("Missing steps", "0.84"),
    ("Redundant steps", "0.96"),
    ("Duplicate steps", "0.96"),
    ("Satisfy Constraint", "0.85"),
    ("Complete", "0.92"),
    ("Step order", "0.84"),
)

Rates = Mapping[str, Sequence[float | None]]
"""The rates of the seven criteria by model."""


async def reproduce(session: Session, folder: Path) -> Reproduction:
    """Reproduces Tables 2 and 5 and Figures 2, 5, 6 and 9 to 12."""
    heat_map, accuracies = (_recovered(folder / name) for name in RECOVERED)
    service = AlignmentServiceStub(session.client.channel)
    summaries: dict[str, Summary] = {}
    if session.offline:
        made = Reproduction(TITLE, "Data: the printed Table 5, and values recovered from the figures.")
        made.omissions.append(
            Omission("The rows of models in Table 5; Figure 6", "No model is named (--offline).")
        )
    else:
        rows = _tasks(folder)
        made = Reproduction(TITLE, f"Data: {len(rows)} tasks of CoScript; MCScript was not released.")
        for name, mechanism in (
            (_AGENTS, scripts_pb2.MECHANISM_AGENTS),
            (_SINGLE, scripts_pb2.MECHANISM_SINGLE_JUDGE),
        ):
            spec = RunSpec(models=session.models, scripts=ScriptsRunOptions(mechanism=mechanism))
            options = session.options(["topic"], ["steps"])
            summaries[name] = await session.run(name, spec, rows, options, judge_roles=_JUDGES[name])
    printed = {model: [float(value) for value in line.split()[2:]] for model, line in _TABLE_5.items()}
    rates = {name: _rates(summary, session.models) for name, summary in summaries.items()}
    try:
        if accuracies is not None:
            made.tables.append(await _table_2(service, accuracies))
        made.tables += _PRINTED
        made.tables.append(await _table_5(service, session, summaries, rates, printed))
        if len(rates.get(_AGENTS, {})) > 1:
            made.tables.append(await _figure_6(service, rates))
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    made.figures += _figures(summaries, rates, printed, heat_map, accuracies)
    made.omissions += _OMISSIONS
    return made


_PRINTED = (
    Table(
        "table-3",
        "Table 3: Accuracy by source of the gold answer, as printed",
        [Column("Gold answer generation"), Column("NM"), Column("NR"), Column("ND")],
        [Row([words(cell) for cell in row]) for row in _TABLE_3],
    ),
    Table(
        "table-4",
        "Table 4: Accuracy on perturbations, as printed",
        [Column("Perturbations category"), Column("Acc.")],
        [Row([words(cell) for cell in row]) for row in _TABLE_4],
    ),
)
_OMISSIONS = (
    Omission(
        "Table 5 and Figures 2, 5 and 9 to 12 on MCScript",
        "MCScript was not released. Models are evaluated on the tasks of CoScript, and the printed values "
        "are shown beside.",
    ),
    Omission(
        "Tables 2 and 3, Figures 4 and 7, agreement with people",
        "The 200 annotated scripts were not released, so the printed values are shown. For own labels, "
        '"dramaturg ablate" evaluates the mechanisms and the sources of the gold answer.',
    ),
    Omission(
        "Table 4, perturbations",
        'The perturbed scripts were not released. "dramaturg perturb write" and "dramaturg perturb report" '
        "insert the six faults and measure which of them judges detect.",
    ),
    Omission(
        "Figure 6, ROUGE and BERTScore",
        "The ranks of the two mechanisms are compared. The paper's scripts were not released.",
    ),
    Omission(
        "Figure 5 for the models of a run",
        "It pools models of one size, and a run has no such groups; Table 5 names the size of each model.",
    ),
    Omission("Tables 1 and 6 to 10, Figures 1, 3 and 8", "They are examples, prompts and screenshots."),
)


def _tasks(folder: Path) -> Sequence[EvaluateScriptsRequest]:
    """The tasks, without the scripts that the data has for them."""
    file = next((folder / name for name in TASKS if (folder / name).exists()), None)
    if file is None:
        raise DataError(f"{folder}: has none of {', '.join(TASKS)}")
    try:
        conversion = convert([("released", read_file(file))])
    except LineError as error:
        raise DataError(str(error)) from error
    if not conversion.requests:
        raise DataError(f"{file}: has no tasks")
    for row in conversion.requests:
        del row.candidates[:]
    return conversion.requests


def _recovered(file: Path) -> Mapping[str, Any] | None:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{file}: is not an object")
    return value


def _find(summary: Summary, criterion: str, model: str = "", **tags: str) -> VerdictFigures | None:
    """The figures of one model, or of all models together, in one group."""
    return next(
        (
            one
            for one in summary.scripts.figures
            if (one.criterion, one.model, one.all_models) == (criterion, model, not model)
            and dict(one.tags) == tags
        ),
        None,
    )


def _rate(found: VerdictFigures | None) -> float | None:
    return found.pass_rate.value if found is not None and found.pass_rate.HasField("value") else None


def _rates(summary: Summary, models: Sequence[str]) -> Rates:
    return {model: [_rate(_find(summary, criterion, model)) for criterion in ABSEVAL] for model in models}


async def _rank(service: AlignmentServiceAsyncStub, methods: Mapping[str, Rates]) -> ranking_pb2.RankGroup:
    """Ranks models by the unweighted mean of their rates, by each method."""
    request = ranking_pb2.RankSystemsRequest(macro_tag="criterion")
    models = dict.fromkeys(model for rates in methods.values() for model in rates)
    for model in models:
        for place, criterion in enumerate(ABSEVAL):
            scores = {name: rates[model][place] for name, rates in methods.items() if model in rates}
            request.items.add(
                id=criterion,
                system=model,
                scores={name: value for name, value in scores.items() if value is not None},
                tags={"criterion": criterion},
            )
    return (await service.RankSystems(request)).groups[0]


def _ranks(group: ranking_pb2.RankGroup, method: str) -> Mapping[str, float | None]:
    found = next((one for one in group.methods if one.method == method), ranking_pb2.MethodRanking())
    return {one.system: one.rank if one.HasField("rank") else None for one in found.systems}


async def _table_5(
    service: AlignmentServiceAsyncStub,
    session: Session,
    summaries: Mapping[str, Summary],
    rates: Mapping[str, Rates],
    printed: Rates,
) -> Table:
    rows: list[Row] = []
    notes = [
        "NM: No Missing Steps, NR: No Redundant Steps, ND: No Duplicate Steps, EX: Executable,",
        "SC: Satisfy Constraint, CG: Complete Goal, OC: Order Correct.",
        "Ranks are by the unweighted mean of the seven rates.",
    ]
    if summaries:
        ranks = _ranks(await _rank(service, {_AGENTS: rates[_AGENTS]}), _AGENTS)
        for model in session.models:
            cells = [number(value, _DIGITS) for value in rates[_AGENTS][model]]
            rows.append(Row([words(model), _rank_cell(ranks.get(model)), words(_size(model)), *cells]))
        everything = (estimate(_pass_rate(_find(summaries[_AGENTS], one)), _DIGITS) for one in ABSEVAL)
        rows.append(Row([words("ALL"), words("-"), words("-"), *everything], ruled=True))
        abstained = ", ".join(
            f"{count} {reason}" for reason, count in sorted(summaries[_AGENTS].abstentions_by_reason.items())
        )
        notes.append(f"Verdicts that abstain are left out: {abstained or 'none'}.")
    ranks = _ranks(await _rank(service, {"printed": printed}), "printed")
    for index, (model, line) in enumerate(_TABLE_5.items()):
        rank, size, *values = line.split()
        cells = [number(float(value), _DIGITS) for value in values]
        rows.append(
            Row(
                [words(f"{model} (paper)"), _rank_cell(ranks[model], rank), words(size), *cells],
                ruled=not index,
            )
        )
    all_cells = (number(float(value), _DIGITS) for value in _ALL.split())
    rows.append(Row([words("ALL (paper)"), words("-"), words("-"), *all_cells], ruled=True))
    return Table(
        "table-5",
        "Table 5: Share of scripts that meet each criterion",
        [Column("Model Name"), Column("Rank"), Column("Size"), *map(Column, _SHORT.values())],
        rows,
        notes=notes,
        printed_note="In brackets: the printed rank; the rank beside it follows from the printed rates.",
    )


def _rank_cell(rank: float | None, printed: str = "") -> Cell:
    return number(rank, 0 if rank is None or rank == int(rank) else 1, printed)


def _pass_rate(found: VerdictFigures | None) -> Any:
    return found.pass_rate if found is not None else None


def _size(model: str) -> str:
    """The number of parameters in the name of a model, such as "7b"."""
    found = _SIZE.search(model)
    return found[1].upper().replace("X", "x") if found else "-"


async def _table_2(service: AlignmentServiceAsyncStub, recovered: Mapping[str, Any]) -> Table:
    """The squared errors that follow from the accuracies of Figure 7, over six and over seven criteria."""
    line = recovered["fig6_line_plot.svg"]
    names, errors = line["metrics"], {}
    for mechanism, member in (("ABSEval", "ABSEval"), ("Single-LLM", "Single Agent")):
        request = accuracy_pb2.MeasureAccuracyRequest(macro_tag="criterion")
        for criterion, accuracy in zip(names, line[member], strict=True):
            right = round(_ANNOTATED * accuracy)
            for script in range(_ANNOTATED):
                request.items.add(
                    gold="1", predicted="1" if script < right else "0", tags={"criterion": criterion}
                )
        request.subsets.add(
            name="six", tag="criterion", values=[name for name in names if name != _SHORT["executable"]]
        )
        groups = (await service.MeasureAccuracy(request)).groups
        errors[mechanism] = {
            group.subset: group.policies[0].macro_mean_squared_error for group in groups if not group.tags
        }
    rows = [
        Row(
            [
                words(f"{model} (paper)"),
                words(mechanism),
                words(printed),
                *(
                    estimate(errors[mechanism][subset], 4) if model == _TABLE_2[0][0] else number(None, 4)
                    for subset in ("all", "six")
                ),
            ]
        )
        for model, mechanism, printed in _TABLE_2
    ]
    return Table(
        "table-2",
        "Table 2: Mean squared error against people",
        [
            Column("LLM"),
            Column("Mechanism"),
            Column("MSE (paper)"),
            Column("seven criteria", "From Figure 7"),
            Column("six criteria", "From Figure 7"),
        ],
        rows,
        label_count=2,
        notes=[
            f"Computed from the accuracies of Figure 7 on {_ANNOTATED} scripts; six criteria: without EX.",
            "Of labels that are 0 or 1, the squared error is one less the accuracy.",
        ],
    )


async def _figure_6(service: AlignmentServiceAsyncStub, rates: Mapping[str, Rates]) -> Table:
    group = await _rank(service, rates)
    ranks = {name: _ranks(group, name) for name in rates}
    rows = [
        Row([words(model), *(_rank_cell(ranks[name].get(model)) for name in rates)])
        for model in rates[_AGENTS]
    ]
    notes = [
        f"Kendall's tau of the mean rates of {one.first_method} and {one.second_method}: "
        f"{estimate(one.kendall, _DIGITS).text}; Spearman's rho: {estimate(one.spearman, _DIGITS).text}."
        for one in group.correlations
    ]
    return Table(
        "figure-6",
        "Figure 6: Ranks of models by mechanism",
        [Column("Model Name"), *map(Column, rates)],
        rows,
        notes=notes,
    )


def _figures(
    summaries: Mapping[str, Summary],
    rates: Mapping[str, Rates],
    printed: Rates,
    heat_map: Mapping[str, Any] | None,
    recovered: Mapping[str, Any] | None,
) -> Iterator[Figure]:
    own = rates.get(_AGENTS, {})
    named = {**own, **{f"{model} (paper)": values for model, values in printed.items()}}
    if recovered is not None:
        yield _topics(recovered["fig_pie_topics"])
        gold = recovered["fig4_radar_gold_answer.svg"]
        shown = {name: gold[name] for name in ("with gold", "without gold")}
        yield _criteria_bars("figure-4", "Figure 4: Agreement with people by gold answer, as printed", shown)
        yield _sizes(recovered["fig5_heat_size_by_metric"])
        line = recovered["fig6_line_plot.svg"]
        shown = {name: line[name] for name in ("ABSEval", "Single Agent")}
        yield _criteria_bars("figure-7", "Figure 7: Agreement with people by mechanism, as printed", shown)
    if summaries:
        yield from _topic_maps(summaries[_AGENTS], list(own))
        yield _overall(summaries[_AGENTS])
        yield _by_steps(summaries[_AGENTS])
    else:
        values = [float(value) for value in _ALL.split()]
        yield _criteria_bars("figure-10", "Figure 10: Accuracy of all models", {"ALL (paper)": values})
    if heat_map is not None:
        models = list(next(iter(heat_map.values())))
        yield HeatMap(
            "figure-9-paper",
            "Figure 9: Rates by topic and model, as printed",
            list(heat_map),
            {model: [row.get(model) for row in heat_map.values()] for model in models},
        )
    for place, (criterion, short) in enumerate(_SHORT.items()):
        yield BarChart(
            f"figure-11-{short.lower()}",
            f"Figure 11: {criterion.replace('_', ' ')} ({short})",
            list(named),
            {"rate": [values[place] for values in named.values()]},
            value_name="share of scripts",
            limits=(0, 1),
        )


def _criteria_bars(name: str, title: str, series: Mapping[str, Sequence[float | None]]) -> BarChart:
    return BarChart(name, title, list(_SHORT.values()), series, value_name="share of scripts", limits=(0, 1))


def _topics(counts: Mapping[str, int]) -> BarChart:
    topics = {topic: count for topic, count in counts.items() if topic != "total"}
    return BarChart(
        "figure-2",
        "Figure 2: Tasks of MCScript by topic, as printed",
        list(topics),
        {"tasks": list(topics.values())},
        value_name="tasks",
    )


def _sizes(recovered: Mapping[str, Any]) -> HeatMap:
    return HeatMap(
        "figure-5",
        "Figure 5: Rates by model size and criterion, as printed",
        list(_SHORT.values()),
        {
            size: [recovered[short][place] for short in _SHORT.values()]
            for place, size in enumerate(recovered["order"])
        },
    )


def _topic_maps(summary: Summary, models: Sequence[str]) -> Iterator[HeatMap]:
    topics = _tag_values(summary, "topic")
    yield HeatMap(
        "figure-9",
        "Figure 9: Rates by topic and model",
        topics,
        {model: [_rate(_find(summary, "", model, topic=topic)) for topic in topics] for model in models},
        limits=(0, 1),
    )


def _overall(summary: Summary) -> BarChart:
    return _criteria_bars(
        "figure-10",
        "Figure 10: Accuracy of all models",
        {
            "ALL": [_rate(_find(summary, criterion)) for criterion in ABSEVAL],
            "ALL (paper)": [float(value) for value in _ALL.split()],
        },
    )


def _by_steps(summary: Summary) -> LineChart:
    steps = _tag_values(summary, "steps")
    return LineChart(
        "figure-12",
        "Figure 12: Rates by the number of steps",
        steps,
        {
            criterion.replace("_", " "): [_rate(_find(summary, criterion, steps=one)) for one in steps]
            for criterion in _BY_LENGTH
        },
        value_name="share of scripts",
        label_name="steps of the script",
        limits=(0, 1),
        notes=["All models together. The paper prints no values."],
    )


def _tag_values(summary: Summary, tag: str) -> list[str]:
    """The values of a tag, in the order of the summary."""
    return list(dict.fromkeys(one.tags[tag] for one in summary.scripts.figures if tag in one.tags))
