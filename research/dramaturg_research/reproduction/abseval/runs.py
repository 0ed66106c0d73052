"""The runs of ABSEval, and its tables and figures in the order of the paper."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from dramaturg.api.alignment.v1 import ranking_pb2, text_pb2
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.common.v1.script_pb2 import Script, Task
from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSample, RunSpec, ScriptsRunOptions
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.datasets.json_lines import LineError
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.results.groups import BASE, LINE_TAG, VARIANT_TAG
from dramaturg.service.errors import from_rpc_error
from dramaturg.summaries.labels import AmbiguousLabelsError, HumanLabels, LabelJoin
from dramaturg.tables.model import Table
from dramaturg_research.ablations.agreement import labelled_outcomes, measure_agreement, read_verdicts
from dramaturg_research.ablations.variants import VARIANTS
from dramaturg_research.formats.coscript import convert, read_file
from dramaturg_research.reproduction.abseval.faults import AGENT_ROLES, Faults, name_judges, plant_faults
from dramaturg_research.reproduction.abseval.figures import (
    ablation_figures,
    make_figures,
    people_figures,
    ranks_figure,
    steps_figure,
)
from dramaturg_research.reproduction.abseval.printed import TABLE_5
from dramaturg_research.reproduction.abseval.rates import (
    MODEL_GROUP,
    STEPS_TAG,
    model_groups,
    model_rates,
    quarters_of_steps,
)
from dramaturg_research.reproduction.abseval.tables import (
    AGENTS,
    BERTSCORE,
    METRICS,
    SINGLE,
    Scores,
    ablations_table,
    figure_5,
    figure_6,
    figure_12,
    people_table,
    table_2,
    table_3,
    table_4,
    table_5,
)
from dramaturg_research.reproduction.paper import DataError, Omission, Reproduction
from dramaturg_research.reproduction.session import Session

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.accuracy_pb2 import AccuracyGroup
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


ROLES = ("author", "synthesize", "critic", "execute", "commonsense", "script-judge", "alignment")
"""The roles that a gateway must serve."""

TITLE = "ABSEval: An Agent-based Framework for Script Evaluation (Liang et al. 2024)"
TASKS = ("coscript/test_data.json", "test_data.json")
"""The tasks: a released file of CoScript, below the folder of data or in it."""
RECOVERED = ("abseval/fig9_heatmap_topic_by_model_recovered.json", "abseval/fig6_fig4_recovered.json")
"""Values recovered from the figures of the paper: Figure 9; Figures 4 to 7. Optional."""

_JUDGES = {
    AGENTS: AGENT_ROLES,
    SINGLE: ("script-judge",),
}
_ABLATIONS, _PERTURBATIONS = "ablations", "perturbations"
_SCORED_AT_ONCE = 500
_TEXTS = "texts"
_NUMBER = re.compile(r"\d+")


async def reproduce(session: Session, folder: Path) -> Reproduction:
    """Reproduces Tables 2, 4 and 5 and Figures 2, 5, 6 and 9 to 12."""
    heat_map, accuracies = (_recovered(folder / name) for name in RECOVERED)
    service = AlignmentServiceStub(session.client.channel)
    summaries: dict[str, Summary] = {}
    faults = Faults([], [])
    if session.offline:
        made = Reproduction(TITLE, "Data: the printed Table 5, and values recovered from the figures.")
        made.omissions.append(
            Omission("The rows of models in Table 5; Figure 6", "No model is named (--offline).")
        )
    else:
        released = [_request(task) for task in session.tasks] or _released(folder)
        rows = [_without_candidates(row) for row in released]
        source = "tasks of --tasks" if session.tasks else "tasks of CoScript; MCScript was not released"
        made = Reproduction(TITLE, f"Data: {len(rows)} {source}.")
        _check_labels(session, rows)
        for name, mechanism in (
            (AGENTS, scripts_pb2.MECHANISM_AGENTS),
            (SINGLE, scripts_pb2.MECHANISM_SINGLE_JUDGE),
        ):
            spec = RunSpec(models=session.models, scripts=ScriptsRunOptions(mechanism=mechanism))
            options = session.options(["topic"], [STEPS_TAG], [MODEL_GROUP])
            options.model_groups.update(model_groups(session.models))
            summaries[name] = await session.run(name, spec, rows, options, judge_roles=_JUDGES[name])
        if session.ablations:
            summaries[_ABLATIONS] = await session.run(
                _ABLATIONS,
                RunSpec(models=session.models, scripts=ScriptsRunOptions()),
                _varied(session.selected(rows), session),
                session.options([VARIANT_TAG]),
                limited=False,
            )
        if session.perturbations:
            faults = await plant_faults(session, released, await _gold_answers(session, released))
            summaries[_PERTURBATIONS] = await session.run(
                _PERTURBATIONS,
                RunSpec(scripts=ScriptsRunOptions(mechanism=scripts_pb2.MECHANISM_AGENTS)),
                faults.rows,
                limited=False,
            )
    ablated, perturbed = (summaries.pop(name, None) for name in (_ABLATIONS, _PERTURBATIONS))
    printed = {model: [float(value) for value in line.split()[2:]] for model, line in TABLE_5.items()}
    rates = {name: model_rates(summary, session.models) for name, summary in summaries.items()}
    ranks: Table | None = None
    try:
        agreement = await _agreement(service, session) if ablated is not None else {}
        made.tables.append(await table_2(service, accuracies, session, agreement))
        made.tables += [table_3(agreement), table_4(perturbed, faults.notes)]
        made.tables.append(await table_5(service, session, summaries, rates, printed))
        if len(rates.get(AGENTS, {})) > 1 and not session.dry_run:
            references = [
                row.candidates[0].script if row.candidates else None for row in session.selected(released)
            ]
            scores = await _text_scores(service, session, references)
            ranks, correlations = await figure_6(service, rates, scores)
            made.tables += [ranks, correlations]
            if scores.missing:
                reason = f"It was not computed: {scores.missing}."
                made.omissions.append(Omission("Figure 6, BERTScore", reason))
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    if ablated is not None:
        made.tables.append(ablations_table(ablated))
        made.figures += ablation_figures(ablated)
        if agreement:
            made.tables.append(people_table(agreement))
            made.figures += people_figures(agreement)
    sizes = accuracies["fig5_heat_size_by_metric"] if accuracies is not None else None
    if AGENTS in summaries:
        quarters = quarters_of_steps(summaries[AGENTS])
        by_quarter = await _by_quarter(session, quarters)
        by_steps = figure_12(summaries[AGENTS], by_quarter, list(dict.fromkeys(quarters.values())))
        made.tables += [figure_5(session, summaries[AGENTS], sizes), by_steps]
        made.figures.append(steps_figure(by_steps))
    topics = [row.task.topic for row in session.selected(rows)] if summaries else []
    made.figures += make_figures(summaries, rates, printed, heat_map, accuracies, topics)
    if ranks is not None:
        made.figures.append(ranks_figure(ranks))
    made.figures.sort(key=lambda figure: int(_NUMBER.findall(figure.name)[0]))
    for name, values, parts in zip(
        RECOVERED,
        (heat_map, accuracies),
        ("Figure 9", "Figures 2, 4, 5 and 7, Table 2 from Figure 7"),
        strict=True,
    ):
        if values is None:
            made.omissions.append(Omission(f"{parts}, as printed", f"{name} is not among the data."))
    made.omissions += _OMISSIONS
    return made


_OMISSIONS = (
    Omission(
        "Table 5 and Figures 2, 5 and 9 to 12 on MCScript",
        "MCScript was not released. Models are evaluated on the tasks of CoScript, and the printed values "
        "are shown beside.",
    ),
    Omission(
        "Tables 2 and 3, Figures 4 and 7, the paper's annotations",
        "The 200 annotated scripts were not released, so the printed values are shown. --ablations measures "
        "the agreement of variants with the base, --labels with labels of people on the scripts of a run.",
    ),
    Omission(
        "Table 4, the paper's perturbed scripts",
        "They were not released: GPT-4-turbo inserted the faults into scripts without errors. "
        "--perturbations inserts the faults by rules into CoScript's scripts, which may have other errors; "
        '--perturbation-model inserts them by a model, and "research perturb write" takes labels of people.',
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


def _request(task: Task) -> EvaluateScriptsRequest:
    return EvaluateScriptsRequest(task=task, tags={"topic": task.topic} if task.topic else {})


def _without_candidates(row: EvaluateScriptsRequest) -> EvaluateScriptsRequest:
    found = EvaluateScriptsRequest()
    found.CopyFrom(row)
    found.ClearField("candidates")
    return found


async def _by_quarter(session: Session, quarters: Mapping[str, str]) -> Summary:
    """The figures of the scripts of the agents' run with the quarter as their number of steps."""
    if session.dry_run:
        return Summary()
    samples = []
    for sample in await session.samples(AGENTS):
        for quarter in dict.fromkeys(quarters.values()):
            part = RunSample()
            part.CopyFrom(sample)
            del part.scripts.candidates[:]
            part.scripts.candidates.extend(
                one
                for one in sample.scripts.candidates
                if quarters.get(str(len(one.script.steps))) == quarter
            )
            part.tags[STEPS_TAG] = quarter
            samples += [part] if part.scripts.candidates else []
    return await session.summarize(samples, session.options([STEPS_TAG]))


async def _gold_answers(session: Session, rows: Sequence[EvaluateScriptsRequest]) -> Mapping[str, Script]:
    """The pooled gold answers of the agents' run, by the id of the task."""
    if session.dry_run:
        # Any script stands for the one that the run makes.
        return {row.task.id: row.candidates[0].script for row in rows if row.candidates}
    return {
        sample.scripts.task.id: sample.scripts.gold_answer.script
        for sample in await session.samples(AGENTS)
        if sample.scripts.gold_answer.script.steps
    }


def _varied(rows: Sequence[EvaluateScriptsRequest], session: Session) -> Sequence[EvaluateScriptsRequest]:
    """The rows of each variant."""
    found: list[EvaluateScriptsRequest] = []
    for name, (mechanism, source) in VARIANTS.items():
        for line, row in enumerate(rows, start=1):
            varied = EvaluateScriptsRequest(mechanism=mechanism, gold_answer_source=source)
            varied.MergeFrom(row)
            varied.tags.update({VARIANT_TAG: name, LINE_TAG: str(line)})
            name_judges(varied, session, (*_JUDGES[AGENTS], *_JUDGES[SINGLE]))
            found.append(varied)
    return found


def _check_labels(session: Session, rows: Sequence[EvaluateScriptsRequest]) -> None:
    """Refuses labels that are of no script of the run, before it is bought."""
    if not session.people:
        return
    join = LabelJoin(HumanLabels(session.people, 0, []))
    labels = [
        join.of(str(line), row.task.id, model, criterion)
        for line, row in enumerate(session.selected(rows), start=1)
        for model in session.models
        for criterion in ABSEVAL
    ]
    try:
        join.check()
    except AmbiguousLabelsError as error:
        raise DataError(f"--labels: {error}") from error
    if all(label is None for label in labels):
        raise DataError("--labels: no label is of a script of this run: an item is TASK/MODEL")


async def _agreement(
    service: AlignmentServiceAsyncStub, session: Session
) -> Mapping[str, Mapping[str, AccuracyGroup]]:
    """The agreement of each variant with people, by criterion. Empty: there are no labels."""
    if not session.people or session.dry_run:
        return {}
    samples: dict[str, list[RunSample]] = {}
    for sample in await session.samples(_ABLATIONS):
        if sample.HasField("scripts"):
            samples.setdefault(sample.scripts.tags[VARIANT_TAG], []).append(sample)
    verdicts = {name: read_verdicts(of_variant) for name, of_variant in samples.items()}
    labels = labelled_outcomes(verdicts.get(BASE, {}), HumanLabels(session.people, 0, []))
    found, problem = await measure_agreement(service, verdicts, labels)
    if not found:
        raise DataError(f"--labels: {problem or 'no verdict has a label'}")
    return found


async def _text_scores(
    service: AlignmentServiceAsyncStub, session: Session, references: Sequence[Script | None]
) -> Scores:
    """Scores the written scripts against those of the data, where it has one for the task."""
    run = next(one.run for one in session.runs if one.name == AGENTS)
    items: list[ranking_pb2.RankedItem] = []
    pairs: list[text_pb2.TextPair] = []
    async for sample in session.client.runs.samples(run.id):
        for one in sample.scripts.candidates:
            reference = references[sample.index]
            if one.script.steps and reference is not None:
                tags = {"criterion": _TEXTS}
                items.append(ranking_pb2.RankedItem(id=str(sample.index), system=one.model, tags=tags))
                pairs.append(text_pb2.TextPair(candidate=_text(one.script), reference=_text(reference)))
    method = missing = ""
    for start in range(0, len(pairs), _SCORED_AT_ONCE):
        request = text_pb2.ScoreTextRequest(pairs=pairs[start : start + _SCORED_AT_ONCE], metrics=METRICS)
        response = await service.ScoreText(request)
        scored, method = response.scores, response.methods.get(BERTSCORE, "")
        if not any(BERTSCORE in scores.scores for scores in scored):
            missing = missing or scored[0].undefined[BERTSCORE]
        for place, scores in enumerate(scored, start=start):
            items[place].scores.update(scores.scores)
    if missing:
        # Ranks by a part of the scripts are not comparable.
        for item in items:
            item.scores.pop(BERTSCORE, None)
    return Scores(items, method, missing)


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
