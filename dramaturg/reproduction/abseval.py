"""ABSEval (Liang et al. 2024): Tables 2, 4 and 5 and Figures 2, 5, 6 and 9 to 12.

MCScript, the data of the paper, was not released. The tasks are those of CoScript (Yuan et al. 2023), which
are of the same kind: an abstract goal with a constraint, in a topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from dramaturg.api.alignment.v1 import accuracy_pb2, ranking_pb2, text_pb2
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.common.v1.script_pb2 import Script
from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec, ScriptsRunOptions
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.summary_pb2 import PerturbationFigures, Summary, VerdictFigures
from dramaturg.datasets import Row as DatasetRow
from dramaturg.datasets.json_lines import LineError
from dramaturg.formats.coscript import convert, read_file
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.perturbations.categories import Category
from dramaturg.perturbations.originals import Originals
from dramaturg.perturbations.rules import RULES
from dramaturg.perturbations.variants import Skipped, Variant, by_rule
from dramaturg.reproduction.figures import BarChart, Figure, HeatMap, LineChart
from dramaturg.reproduction.paper import DataError, Omission, Reproduction
from dramaturg.reproduction.session import Session, evenly
from dramaturg.reproduction.tables import Cell, Column, Row, Table, count, estimate, number, words
from dramaturg.results.variants import BASE, LINE_TAG, VARIANT_TAG, VARIANTS
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
_ABLATIONS, _PERTURBATIONS = "ablations", "perturbations"
# Section 4.2: the scripts that each fault is put into.
_PERTURBED = 50
_BERTSCORE = "bertscore"
_METRICS = ("rouge-1", "rouge-2", "rouge-l", "bleu", "chrf", _BERTSCORE)
_SCORED_AT_ONCE = 500
_TEXTS = "texts"
# Section A.4: the criteria of Figure 12.
_BY_LENGTH = ("order_correct", "executable", "no_redundant_steps", "satisfies_constraints")
_SIZE = re.compile(r"(?<![a-z0-9])(\d+(?:\.\d+)?(?:x\d+(?:\.\d+)?)?b)(?![a-z0-9])", re.IGNORECASE)
_MODEL_GROUP = "model_group"
# Figure 5: its sizes, and the number of parameters in billions that each is below. The means of Table 5's
# rates are the values of the figure with 8B among 7b, 14B among 13b, 8x7B as 40b and 72B among 70b.
_SIZES = {"7b": 10.0, "13b": 30.0, "40b": 60.0, "70b": float("inf")}
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


class _Scores(NamedTuple):
    """The scores of written scripts by text metrics."""

    items: Sequence[ranking_pb2.RankedItem]
    method: str
    """How BERTScore was computed."""
    missing: str
    """Why BERTScore is missing. Empty: it is not."""


async def reproduce(session: Session, folder: Path) -> Reproduction:
    """Reproduces Tables 2, 4 and 5 and Figures 2, 5, 6 and 9 to 12."""
    heat_map, accuracies = (_recovered(folder / name) for name in RECOVERED)
    service = AlignmentServiceStub(session.client.channel)
    summaries: dict[str, Summary] = {}
    if session.offline:
        made = Reproduction(TITLE, "Data: the printed Table 5, and values recovered from the figures.")
        made.omissions.append(
            Omission("The rows of models in Table 5; Figure 6", "No model is named (--offline).")
        )
    else:
        released = _released(folder)
        rows = [_without_candidates(row) for row in released]
        made = Reproduction(TITLE, f"Data: {len(rows)} tasks of CoScript; MCScript was not released.")
        for name, mechanism in (
            (_AGENTS, scripts_pb2.MECHANISM_AGENTS),
            (_SINGLE, scripts_pb2.MECHANISM_SINGLE_JUDGE),
        ):
            spec = RunSpec(models=session.models, scripts=ScriptsRunOptions(mechanism=mechanism))
            options = session.options(["topic"], ["steps"], [_MODEL_GROUP])
            options.model_groups.update(_model_groups(session.models))
            summaries[name] = await session.run(name, spec, rows, options, judge_roles=_JUDGES[name])
        if session.ablations:
            summaries[_ABLATIONS] = await session.run(
                _ABLATIONS,
                RunSpec(models=session.models, scripts=ScriptsRunOptions()),
                _varied(session.selected(rows)),
                session.options([VARIANT_TAG]),
                judge_roles=(*_JUDGES[_AGENTS], *_JUDGES[_SINGLE]),
                limited=False,
            )
        if session.perturbations:
            summaries[_PERTURBATIONS] = await session.run(
                _PERTURBATIONS,
                RunSpec(scripts=ScriptsRunOptions(mechanism=scripts_pb2.MECHANISM_AGENTS)),
                _perturbed(released, session),
                judge_roles=_JUDGES[_AGENTS],
                limited=False,
            )
    ablated, perturbed = (summaries.pop(name, None) for name in (_ABLATIONS, _PERTURBATIONS))
    printed = {model: [float(value) for value in line.split()[2:]] for model, line in _TABLE_5.items()}
    rates = {name: _rates(summary, session.models) for name, summary in summaries.items()}
    try:
        if accuracies is not None:
            made.tables.append(await _table_2(service, accuracies))
        made.tables += [_TABLE_3_PRINTED, _table_4(perturbed)]
        made.tables.append(await _table_5(service, session, summaries, rates, printed))
        if len(rates.get(_AGENTS, {})) > 1 and not session.dry_run:
            references = [row.candidates[0].script for row in session.selected(released)]
            scores = await _text_scores(service, session, references)
            made.tables.append(await _figure_6(service, rates, scores))
            if scores.missing:
                reason = f"It was not computed: {scores.missing}."
                made.omissions.append(Omission("Figure 6, BERTScore", reason))
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    if ablated is not None:
        made.tables.append(_ablations(ablated))
        made.figures += _ablation_figures(ablated)
    sizes = accuracies["fig5_heat_size_by_metric"] if accuracies is not None else None
    if _AGENTS in summaries:
        made.tables.append(_figure_5(session, summaries[_AGENTS], sizes))
    made.figures += _figures(summaries, rates, printed, heat_map, accuracies)
    made.omissions += _OMISSIONS
    return made


_TABLE_3_PRINTED = Table(
    "table-3",
    "Table 3: Accuracy by source of the gold answer, as printed",
    [Column("Gold answer generation"), Column("NM"), Column("NR"), Column("ND")],
    [Row([words(cell) for cell in row]) for row in _TABLE_3],
)
_OMISSIONS = (
    Omission(
        "Table 5 and Figures 2, 5 and 9 to 12 on MCScript",
        "MCScript was not released. Models are evaluated on the tasks of CoScript, and the printed values "
        "are shown beside.",
    ),
    Omission(
        "Tables 2 and 3, Figures 4 and 7, agreement with people",
        "The 200 annotated scripts were not released, so the printed values are shown. --ablations measures "
        'the agreement of variants with the base; "dramaturg ablate" measures it with own labels.',
    ),
    Omission(
        "Table 4, the paper's perturbed scripts",
        "They were not released: GPT-4-turbo inserted the faults into scripts without errors. "
        "--perturbations inserts the faults by rules into CoScript's scripts, which may have other errors; "
        '"dramaturg perturb write" takes labels of people, or a model that inserts the faults.',
    ),
    Omission(
        "Figure 6, the paper's scripts",
        "They were not released, nor does the paper say which references and which encoder of BERTScore it "
        "used. The ranks are those of the models of a run, with CoScript's scripts as references.",
    ),
    Omission("Tables 1 and 6 to 10, Figures 1, 3 and 8", "They are examples, prompts and screenshots."),
)


def _released(folder: Path) -> Sequence[EvaluateScriptsRequest]:
    """The tasks, each with the script that the data has for it."""
    file = next((folder / name for name in TASKS if (folder / name).exists()), None)
    if file is None:
        raise DataError(f"{folder}: has none of {', '.join(TASKS)}")
    try:
        conversion = convert([("released", read_file(file))])
    except LineError as error:
        raise DataError(str(error)) from error
    if not conversion.requests:
        raise DataError(f"{file}: has no tasks")
    return conversion.requests


def _without_candidates(row: EvaluateScriptsRequest) -> EvaluateScriptsRequest:
    found = EvaluateScriptsRequest()
    found.CopyFrom(row)
    found.ClearField("candidates")
    return found


def _perturbed(
    released: Sequence[EvaluateScriptsRequest], session: Session
) -> Sequence[EvaluateScriptsRequest]:
    """The rows of some released scripts, each unchanged and with the fault of each rule that applies."""
    originals = Originals.read(DatasetRow(line, row) for line, row in enumerate(released, start=1))
    wanted = min(_PERTURBED, session.limit or _PERTURBED, len(originals.scripts))
    strangers, skipped = originals.strangers(), Skipped()
    found: list[EvaluateScriptsRequest] = []
    for one in evenly(originals.scripts, wanted):
        made = by_rule(one, tuple(RULES), strangers, session.seed, skipped)
        variants = (Variant(one, one.steps), *made)
        found += [variant.row(keep_others=False) for variant in variants]
    return found


def _varied(rows: Sequence[EvaluateScriptsRequest]) -> Sequence[EvaluateScriptsRequest]:
    """The rows of each variant."""
    found: list[EvaluateScriptsRequest] = []
    for name, (mechanism, source) in VARIANTS.items():
        for line, row in enumerate(rows, start=1):
            varied = EvaluateScriptsRequest(mechanism=mechanism, gold_answer_source=source)
            varied.MergeFrom(row)
            varied.tags.update({VARIANT_TAG: name, LINE_TAG: str(line)})
            found.append(varied)
    return found


async def _text_scores(
    service: AlignmentServiceAsyncStub, session: Session, references: Sequence[Script]
) -> _Scores:
    """Scores the written scripts against those of the data."""
    run = next(one.run for one in session.runs if one.name == _AGENTS)
    items: list[ranking_pb2.RankedItem] = []
    pairs: list[text_pb2.TextPair] = []
    async for sample in session.client.runs.samples(run.id):
        for one in sample.scripts.candidates:
            if one.script.steps:
                tags = {"criterion": _TEXTS}
                items.append(ranking_pb2.RankedItem(id=str(sample.index), system=one.model, tags=tags))
                pairs.append(
                    text_pb2.TextPair(candidate=_text(one.script), reference=_text(references[sample.index]))
                )
    method = missing = ""
    for start in range(0, len(pairs), _SCORED_AT_ONCE):
        request = text_pb2.ScoreTextRequest(pairs=pairs[start : start + _SCORED_AT_ONCE], metrics=_METRICS)
        response = await service.ScoreText(request)
        scored, method = response.scores, response.methods.get(_BERTSCORE, "")
        if not any(_BERTSCORE in scores.scores for scores in scored):
            missing = missing or scored[0].undefined[_BERTSCORE]
        for place, scores in enumerate(scored, start=start):
            items[place].scores.update(scores.scores)
    if missing:
        # Ranks by a part of the scripts are not comparable.
        for item in items:
            item.scores.pop(_BERTSCORE, None)
    return _Scores(items, method, missing)


def _text(script: Script) -> str:
    return "\n".join(step.text for step in script.steps)


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


async def _rank(
    service: AlignmentServiceAsyncStub,
    methods: Mapping[str, Rates],
    more: Sequence[ranking_pb2.RankedItem] = (),
) -> ranking_pb2.RankGroup:
    """Ranks models by the unweighted mean of their rates, by each method, and by the scores of more items."""
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
    request.items.extend(more)
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


def _model_groups(models: Sequence[str]) -> Mapping[str, str]:
    """The size of Figure 5 of each model whose name has one."""
    found = {}
    for model in models:
        size = _size(model).removesuffix("B")
        if size != "-":
            parameters = prod(float(part) for part in size.split("x"))
            found[model] = next(name for name, bound in _SIZES.items() if parameters < bound)
    return found


def _figure_5(session: Session, summary: Summary, printed: Mapping[str, Any] | None) -> Table:
    groups = _model_groups(session.models)
    rows = []
    for size in _SIZES:
        models = [model for model, group in groups.items() if group == size]
        shown = {} if printed is None else {short: printed[short] for short in _SHORT.values()}
        place = -1 if printed is None else printed["order"].index(size)
        cells = [
            estimate(
                _pass_rate(_find(summary, criterion, **{_MODEL_GROUP: size})),
                _DIGITS,
                str(shown[short][place]) if shown else "",
            )
            for criterion, short in _SHORT.items()
        ]
        rows.append(Row([words(size), words(", ".join(models) or "none"), *cells]))
    return Table(
        "figure-5",
        "Figure 5: Rates by model size and criterion",
        [Column("Size"), Column("Models"), *map(Column, _SHORT.values())],
        rows,
        label_count=2,
        notes=[
            "Sizes are read from the names of models.",
            "Billions of parameters: 7b below 10, 13b below 30, 40b below 60, 70b from 60; 8x7B is 56.",
            "Models whose names have no size are left out.",
        ],
    )


def _table_4(perturbed: Summary | None) -> Table:
    """The detection of faults by category; the printed one alone without a run."""
    if perturbed is None or not perturbed.scripts.HasField("perturbations"):
        return Table(
            "table-4",
            "Table 4: Accuracy on perturbations, as printed",
            [Column("Perturbations category"), Column("Acc.")],
            [Row([words(cell) for cell in row]) for row in _TABLE_4],
        )
    found: PerturbationFigures = perturbed.scripts.perturbations
    faults = {one.category: one for one in found.faults if not one.operation}
    alarms = {one.criterion: one.alarms for one in found.false_alarms}
    rows = []
    for category, (name, printed) in zip(Category, _TABLE_4, strict=True):
        one = faults.get(category)
        detected = one.faults.accuracy_when_answered if one is not None else None
        before = one.passed_unperturbed.accuracy_when_answered if one is not None else None
        alarm = alarms[category.criterion].accuracy_when_answered if category.criterion in alarms else None
        rows.append(
            Row(
                [
                    words(name),
                    estimate(detected, _DIGITS, printed),
                    count(one.faults.item_count if one is not None else 0),
                    estimate(before, _DIGITS),
                    estimate(alarm, _DIGITS),
                ]
            )
        )
    return Table(
        "table-4",
        "Table 4: Accuracy on perturbations",
        [
            Column("Perturbations category"),
            Column("Acc."),
            Column("Scripts"),
            Column("Acc. if passed unchanged"),
            Column("False alarms"),
        ],
        rows,
        notes=[
            f"Rules inserted the faults into {found.unperturbed_count} scripts of CoScript.",
            "Acc.: the share of scripts with the fault that fail its criterion.",
            "False alarms: the share of unchanged scripts that fail the criterion; the paper states none.",
            "The gold answer is made of the judged script alone. Verdicts that abstain are left out.",
        ],
    )


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


async def _figure_6(service: AlignmentServiceAsyncStub, rates: Mapping[str, Rates], scores: _Scores) -> Table:
    group = await _rank(service, rates, scores.items)
    scored = [name for name in _METRICS if any(name in item.scores for item in scores.items)]
    ranks = {name: _ranks(group, name) for name in (*rates, *scored)}
    rows = [
        Row([words(model), *(_rank_cell(found.get(model)) for found in ranks.values())])
        for model in rates[_AGENTS]
    ]
    notes = [
        f"Kendall's tau of {one.first_method} and {one.second_method}: "
        f"{estimate(one.kendall, _DIGITS).text}; Spearman's rho: {estimate(one.spearman, _DIGITS).text}."
        for one in group.correlations
    ]
    return Table(
        "figure-6",
        "Figure 6: Ranks of models by evaluation metric",
        [Column("Model Name"), *map(Column, ranks)],
        rows,
        notes=[
            "Text metrics compare a script with CoScript's for the task; what is not written is left out.",
            *([] if scores.missing else [f"{_BERTSCORE}: {scores.method}."]),
            *notes,
        ],
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
        yield _sizes(summaries.get(_AGENTS), recovered["fig5_heat_size_by_metric"])
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


def _agreement(summary: Summary, variant: str, criterion: str) -> Estimate | None:
    """The share of verdicts of a variant that are those of the base."""
    found = (one for one in summary.scripts.variants if (one.variant, one.criterion) == (variant, criterion))
    return next((one.agreement.accuracy for one in found), None)


def _ablations(summary: Summary) -> Table:
    rows = []
    for name in VARIANTS:
        rates = (
            estimate(_pass_rate(_find(summary, criterion, variant=name)), _DIGITS) for criterion in ABSEVAL
        )
        shares = (estimate(_agreement(summary, name, criterion), _DIGITS) for criterion in ABSEVAL)
        rows.append(Row([words(name), *rates, *shares]))
    return Table(
        "ablations",
        "Figures 4 and 7: Variants of the judges",
        [
            Column("Variant"),
            *(Column(name, "share that meets") for name in _SHORT.values()),
            *(Column(name, "agreement with base") for name in _SHORT.values()),
        ],
        rows,
        notes=["The base has the agents and the pooled gold answer. The paper's agreement is with people."],
    )


def _ablation_figures(summary: Summary) -> Iterator[BarChart]:
    single = [name for name, (one, _) in VARIANTS.items() if one == scripts_pb2.MECHANISM_SINGLE_JUDGE]
    agents = [name for name in VARIANTS if name not in (BASE, *single)]
    for name, title, variants in (
        ("figure-4-ablations", "Figure 4: Agreement with the base by gold answer", agents),
        ("figure-7-ablations", "Figure 7: Agreement of the single judge with the base", single),
    ):
        shown = {
            one: [
                found.value if (found := _agreement(summary, one, criterion)) is not None else None
                for criterion in ABSEVAL
            ]
            for one in variants
        }
        yield _criteria_bars(name, title, shown)


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


def _sizes(summary: Summary | None, recovered: Mapping[str, Any]) -> HeatMap:
    own = {}
    for size in _SIZES:
        found = [_find(summary or Summary(), criterion, **{_MODEL_GROUP: size}) for criterion in ABSEVAL]
        if any(found):
            own[size] = [_rate(one) for one in found]
    printed = {
        f"{size} (paper)": [recovered[short][place] for short in _SHORT.values()]
        for place, size in enumerate(recovered["order"])
    }
    return HeatMap(
        "figure-5",
        "Figure 5: Rates by model size and criterion",
        list(_SHORT.values()),
        {**own, **printed},
        limits=(0, 1),
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
