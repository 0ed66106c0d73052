"""proScript (Sakaguchi et al. 2021, arXiv 2104.08251): Tables 1 to 4 and Figures 3, 5, 7 and 8."""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from dramaturg.api.evaluation.v1 import graphs_pb2
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.api.evaluation.v1.run_pb2 import GraphsRunOptions, RunSpec
from dramaturg.api.evaluation.v1.summary_pb2 import DistanceFigures, GraphFigures, Summary
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1.graph_service_pb2_grpc import GraphServiceStub
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.formats.proscript import DEGREE, convert_rows
from dramaturg.graphs.baselines import draw_baselines
from dramaturg.graphs.file_scores import score_files, score_pairs
from dramaturg.graphs.files import FileError, read_rows
from dramaturg.reproduction.figures import BarChart, LineChart
from dramaturg.reproduction.paper import DataError, Omission, Reproduction, data_folder
from dramaturg.reproduction.proscript_sheets import (
    HUMAN,
    REVISIONS,
    TABLE_2,
    VOTES,
    read_sheets,
    write_sheets,
)
from dramaturg.reproduction.session import Session
from dramaturg.reproduction.tables import Cell, Column, Row, Table, count, number, percent, words
from dramaturg.results.graphs import EDIT_NAMES
from dramaturg.service.errors import from_rpc_error

if TYPE_CHECKING:
    from dramaturg.api.graph.v1.graph_service_pb2_grpc import GraphServiceAsyncStub

ROLES = ("author", "edges", "graph", "alignment")
"""The roles that a gateway must serve."""

TITLE = "proScript: Partially Ordered Scripts Generation (Sakaguchi et al. 2021)"
SHEETS = "sheets"
"""The folder of the sheets, below that of the reproduction."""
DEV = "proscript_dev.json"
"""The released development part."""
PREDICTIONS, REFERENCES, PUBLISHED = (
    "results_v4-flash.json",
    "reference_for_eval_summary.json",
    "eval_summary_v4-flash.json",
)
"""Predictions of a model, their references, and their published summary. Optional."""

_DIGITS = 2
_SPLITS = ("dev", "test (all)", "test (in domain)", "test (out domain)")
# Table 1: F1, P and R for each split.
_TABLE_1 = {
    "random": "21.30 21.08 21.72 21.03 21.00 21.26 20.57 20.52 20.84 21.32 21.27 21.58",
    "Pairwise (RoB)": "65.75 67.05 64.71 61.29 62.85 60.06 63.25 64.97 61.89 59.06 60.44 57.98",
    "Pairwise (T5)": "70.96 71.93 69.76 67.64 69.44 66.18 69.50 71.41 67.96 65.51 67.20 64.16",
    "proScr(11B-100)": "56.05 56.58 55.75 52.26 52.91 51.89 54.98 55.67 54.59 49.16 49.76 48.83",
    "proScr(11B-1k)": "65.98 66.49 65.71 60.55 61.24 60.15 64.64 65.40 64.20 55.89 56.51 55.54",
    "proScr(L-all)": "66.25 66.89 65.83 63.64 64.22 63.27 65.76 66.38 65.35 61.23 61.76 60.91",
    "proScr(11B-all)": "78.20 78.48 78.14 75.71 75.93 75.72 77.75 78.03 77.71 73.37 73.54 73.46",
    "Human": "89.32 89.60 89.21 89.28 89.91 88.86 90.04 90.54 89.74 88.71 89.44 88.18",
}
# In minutes.
_DURATIONS = {
    "1 minute": 1,
    "10 minutes": 10,
    "1 hour": 60,
    "1 day": 60 * 24,
    "1 week": 60 * 24 * 7,
    "1 month": 60 * 24 * 30,
    "1 year": 60 * 24 * 365,
}
_BY_TEXT = "text"
_TASKS = {
    "generate": graphs_pb2.GRAPH_TASK_GENERATE,
    "pipeline": graphs_pb2.GRAPH_TASK_PIPELINE,
}
_ORIENTATION_NOTE = (
    "P and R are as section 5.2 prints them: P is the share of the reference's edges that were found, R the "
    "share of the predicted edges that are right. By the convention they are the other way round."
)
_ORDINAL = {"1": "1", "2": "2", "3": "3"}
_HIGH_DEGREE = "4 and above"


async def reproduce(session: Session, folder: Path) -> Reproduction:
    """Reproduces Tables 1 to 4 and Figures 3, 5, 7 and 8."""
    place = data_folder(folder, "proscript", DEV)
    rows = _read(place / DEV)
    made = Reproduction(TITLE, f"Data: {len(rows)} scripts of {place.name}/{DEV}.")
    service = GraphServiceStub(session.client.channel)
    try:
        random = await _random(service, session.selected(rows), session.seed)
        released = await _released(service, place)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    edges: Summary | None = None
    if not session.offline:
        spec = RunSpec(
            models=session.models, graphs=GraphsRunOptions(task=graphs_pb2.GRAPH_TASK_PREDICT_EDGES)
        )
        edges = await session.run("predict-edges", spec, rows, session.options([DEGREE]))
        written = {
            name: await session.run(
                name,
                RunSpec(
                    models=session.models,
                    graphs=GraphsRunOptions(task=task, distance_mode=pb.DISTANCE_MODE_PROSCRIPT),
                ),
                rows,
            )
            for name, task in _TASKS.items()
        }
        made.tables += [_table_1(edges, random, session), _table_2(written, session)]
        if session.out is not None and not session.dry_run:
            scripts = await _scripts(session)
            write_sheets(session.out, session.sheets or session.out / SHEETS, scripts, session.seed)
    else:
        made.tables += [_table_1(None, random, session), _table_2({}, session)]
        made.omissions.append(
            Omission("The rows of models in Tables 1 and 2", "No model is named (--offline).")
        )
    made.tables.append(_degrees(random))
    if released is not None:
        made.tables.append(released)
    made.figures += [_figure_3(place / DEV), _figure_5(edges, random, session)]
    made.omissions += _OMISSIONS
    found: frozenset[str] = frozenset()
    if session.out is not None:
        sheets = session.sheets or session.out / SHEETS
        try:
            found = await read_sheets(session, service, session.out, sheets, made)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
    made.omissions += [omission for sheet, omission in _UNREAD.items() if sheet not in found]
    return made


_OMISSIONS = (
    Omission(
        "Table 1, the paper's models and people; the test parts",
        "Their outputs were not released, and the test part is not among the data read here; the printed "
        "figures are shown.",
    ),
    Omission(
        "Tables 2 to 4 and Figures 7 and 8 of the paper's scripts",
        "The generated scripts, their revisions and the votes were not released. The random baseline of the "
        "paper (11.06 on dev) is of its own scripts.",
    ),
    Omission(
        "Figure 3, the train and test parts",
        "The durations are those of the development part. The paper prints no values.",
    ),
)
_UNREAD = {
    VOTES: Omission(
        "Figure 7, votes on pairs of scripts",
        "There is no vote. A run with models writes sheets/votes.csv; people complete copies of it.",
    ),
    REVISIONS: Omission(
        "Table 2 with revisions, Tables 3 and 4, Figure 8",
        "There is no revision. A run with models writes sheets/revisions.jsonl; people complete copies of "
        "it. Table 2 has the distances to the reference of the data, which differs from a script more than "
        "a revision of it does.",
    ),
}


def _read(file: Path) -> Sequence[EvaluateGraphsRequest]:
    try:
        conversion = convert_rows(read_rows(file), source=file.name)
    except FileError as error:
        raise DataError(str(error)) from error
    if conversion.skipped or not conversion.requests:
        first = next((f"{name}: {reason}" for _, name, reason in conversion.skipped), "there are no rows")
        raise DataError(f"{file}: {first}")
    return conversion.requests


async def _scripts(session: Session) -> dict[str, dict[int, ScriptGraph]]:
    """The written scripts by approach and scenario, and the released ones."""
    found: dict[str, dict[int, ScriptGraph]] = {
        f"{model}, {task}": {} for model in session.models for task in _TASKS
    }
    found[HUMAN] = {}
    for record in session.runs:
        if record.name not in _TASKS:
            continue
        async for sample in session.client.runs.samples(record.run.id):
            if sample.HasField("graphs"):
                found[HUMAN][sample.index] = sample.graphs.reference
            for one in sample.graphs.graphs:
                if one.graph.events:
                    graph = found[f"{one.model}, {record.name}"][sample.index] = one.graph
                    graph.scenario = sample.graphs.reference.scenario
    return found


async def _random(
    service: GraphServiceAsyncStub, rows: Sequence[EvaluateGraphsRequest], seed: int
) -> pb.ScoreEdgesResponse:
    """Scores random graphs over the events of the references."""
    references = [row.reference for row in rows]
    drawn = await draw_baselines(service, references, pb.BASELINE_KIND_RANDOM_DAG, seed)
    pairs = [
        pb.GraphPair(id=str(index), predicted=graph, reference=reference)
        for index, (graph, reference) in enumerate(zip(drawn, references, strict=True))
    ]
    choices = pb.ScoreEdgesRequest(orientation=pb.ORIENTATION_AS_PRINTED, by=["degree"])
    return await score_pairs(service, choices, pairs)


async def _released(service: GraphServiceAsyncStub, place: Path) -> Table | None:
    """The released predictions of a model, scored anew beside their published summary."""
    if not all((place / name).exists() for name in (PREDICTIONS, REFERENCES, PUBLISHED)):
        return None
    scores = await score_files(
        service,
        place / PREDICTIONS,
        place / REFERENCES,
        pb.ScoreEdgesRequest(),
        missing="skip",
    )
    found, published = scores.response.summary, _published(place / PUBLISHED)
    cells: list[tuple[str, Cell]] = [
        ("Scripts", count(found.pair_count, str(published["n"]))),
        ("Exact matches", count(found.exact_match_count, str(published["edges_match_count"]))),
    ]
    cells += [
        (name, number(getattr(found.macro, member), 5, f"{published[theirs]:.5f}"))
        for name, member, theirs in (
            ("Precision", "precision", "precision"),
            ("Recall", "recall", "recall"),
            ("F1", "f1", "f1"),
            ("IoU", "iou", "iou"),
            ("Edge difference", "edge_difference", "ged"),
        )
    ]
    model = PREDICTIONS.removeprefix("results_").removesuffix(".json")
    return Table(
        "released-predictions",
        f"Released predictions of a model ({PREDICTIONS})",
        [Column("Model"), *(Column(name) for name, _ in cells)],
        [Row([words(model), *(cell for _, cell in cells)])],
        notes=["Precision and recall are by the convention."],
        printed_note="In brackets: the published summary of the predictions.",
    )


def _published(file: Path) -> Mapping[str, float]:
    try:
        overall = json.loads(file.read_text(encoding="utf-8"))["overall"]
        return {**overall["edge_metrics_mean"], **overall["exact_match"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: has no overall edge_metrics_mean and exact_match") from error


def _table_1(edges: Summary | None, random: pb.ScoreEdgesResponse, session: Session) -> Table:
    absent = [number(None, _DIGITS)] * 3 * (len(_SPLITS) - 1)
    printed = {name: line.split() for name, line in _TABLE_1.items()}
    drawn = random.summary.macro
    first = [
        percent(value, _DIGITS, given)
        for value, given in zip((drawn.f1, drawn.precision, drawn.recall), printed["random"], strict=False)
    ]
    rest = [Cell(cell.text, printed=given) for cell, given in zip(absent, printed["random"][3:], strict=True)]
    rows = [Row([words("random"), *first, *rest])]
    rows += [
        Row([words(model), *_f1_cells(_of_model(edges, model)), *absent]) for model in session.models if edges
    ]
    rows += [
        Row(
            [words(f"{name} (paper)"), *(number(float(value), _DIGITS) for value in values)],
            ruled=name == "Pairwise (RoB)",
        )
        for name, values in printed.items()
        if name != "random"
    ]
    notes = [
        _ORIENTATION_NOTE,
        "Means over scripts, in percent. Random: edges drawn along a random order of the events, reduced.",
    ]
    for model in session.models:
        found = _of_model(edges, model)
        if found is not None and found.abstentions_by_reason:
            scored = f"{found.edges.pair_count} of {found.graph_count}"
            notes.append(f"{model}: {scored} scripts have a graph; the others are left out.")
    return Table(
        "table-1",
        "Table 1: Edge prediction",
        [Column("Models"), *(Column(name, split) for split in _SPLITS for name in ("F1", "P", "R"))],
        rows,
        notes=notes,
    )


def _of_model(edges: Summary | None, model: str, degree: str = "") -> GraphFigures | None:
    tags = {DEGREE: degree} if degree else {}
    found = edges.graphs.figures if edges is not None else ()
    return next((one for one in found if one.model == model and dict(one.tags) == tags), None)


def _f1_cells(found: GraphFigures | None) -> Sequence[Cell]:
    if found is None or not found.HasField("edges") or not found.edges.HasField("macro"):
        return [number(None, _DIGITS)] * 3
    macro = found.edges.macro
    # The summary has precision and recall by the convention.
    return [percent(value, _DIGITS) for value in (macro.f1, macro.recall, macro.precision)]


def _table_2(written: Mapping[str, Summary], session: Session) -> Table:
    rows: list[Row] = []
    notes: list[str] = []
    for model in session.models:
        for task, summary in written.items():
            found = _distances(summary, model)
            cells = [number(found.mean if found else None, _DIGITS)]
            cells += [number(found.mean_edits[name] if found else None, 3) for name in EDIT_NAMES]
            rows.append(Row([words("dev"), words(f"{model}, {task}"), *cells], ruled=not rows))
            if found is not None and found.proven_count < found.measured_count:
                proven = f"{found.proven_count} of {found.measured_count}"
                notes.append(f"{model}, {task}: {proven} distances are proven; others are upper bounds.")
    for split, lines in TABLE_2.items():
        for index, (model, line) in enumerate(lines.items()):
            values = line.split()
            cells = [number(float(values[0]), _DIGITS), *(number(float(one), 3) for one in values[1:])]
            rows.append(Row([words(split), words(f"{model} (paper)"), *cells], ruled=not index))
    return Table(
        "table-2",
        "Table 2: Script generation, mean graph edit distance",
        [Column("Split"), Column("Models"), Column("Graph Edit Dist"), *map(Column, EDIT_NAMES.values())],
        rows,
        label_count=2,
        notes=[
            "Of this run: to the reference of the data, events matched by equal texts.",
            "Of the paper: to revisions by people.",
            *notes,
        ],
    )


def _distances(summary: Summary, model: str) -> DistanceFigures | None:
    found = (one for one in summary.graphs.figures if one.model == model and not one.tags)
    distances = [distance for one in found for distance in one.distances]
    # The paper compares the texts of events; by meaning a distance is at most as large.
    return next((one for one in distances if one.matching == _BY_TEXT), None)


def _degrees(random: pb.ScoreEdgesResponse) -> Table:
    counts = {group.value: group.summary.pair_count for group in random.groups}
    high = sum(number for degree, number in counts.items() if degree not in _ORDINAL)
    return Table(
        "section-4",
        "Section 4: Scripts by maximum degree",
        [Column("Part"), *map(Column, _ORDINAL), Column(_HIGH_DEGREE)],
        [
            Row([words("dev"), *(count(counts.get(degree, 0)) for degree in _ORDINAL), count(high)]),
            Row([words("train (paper)"), *map(words, ("2198", "915", "108", "31"))]),
        ],
    )


def _figure_3(file: Path) -> BarChart:
    """The released durations. Records without a duration are left out."""
    found = [row.record.get("minutes") for row in read_rows(file)]
    minutes = [one for one in found if isinstance(one, int | float) and not isinstance(one, bool)]
    places = [bisect(list(_DURATIONS.values()), one) for one in minutes]
    return BarChart(
        "figure-3",
        "Figure 3: Scripts by typical duration",
        [*(f"< {name}" for name in _DURATIONS), "longer"],
        {
            "dev": [
                places.count(place) / len(places) if places else None for place in range(len(_DURATIONS) + 1)
            ]
        },
        value_name="share of scripts",
        label_name="duration",
        notes=[f"Of {len(minutes)} scripts with a duration. The paper prints no values and no bins."],
    )


def _figure_5(edges: Summary | None, random: pb.ScoreEdgesResponse, session: Session) -> LineChart:
    groups = {group.value: group.summary.macro.f1 for group in random.groups}
    series: dict[str, list[float | None]] = {}
    for model in session.models if edges else ():
        found = [_of_model(edges, model, degree) for degree in groups]
        series[model] = [_f1_cells(one)[0].value for one in found]
    series["random"] = [100 * value for value in groups.values()]
    return LineChart(
        "figure-5",
        "Figure 5: F1 by maximum degree of the script",
        list(groups),
        series,
        value_name="F1, in percent",
        label_name="maximum degree",
        limits=(0, 100),
        notes=["The paper prints no values for its models."],
    )
