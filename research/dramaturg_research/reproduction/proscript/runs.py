"""The runs of proScript, and its tables and figures in the order of the paper."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1 import graphs_pb2
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest, GraphsResult, MeasuredGraph
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, GraphsRunOptions, RunSample, RunSpec
from dramaturg.api.evaluation.v1.summary_pb2 import DistanceFigures, Summary
from dramaturg.api.generation.v1 import edge_service_pb2
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1.graph_service_pb2_grpc import GraphServiceStub
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.datasets.json_lines import LineError
from dramaturg.graphs.files import FileError, read_rows
from dramaturg.graphs.scores import FileScores, draw_baselines, score_files, score_pairs
from dramaturg.service.errors import from_rpc_error
from dramaturg.service.threads import gather_all
from dramaturg.tables.model import Cell, Column, Row, Table
from dramaturg_research.formats.proscript import DEGREE, convert_rows, max_degree
from dramaturg_research.reproduction.cells import count, estimate, words
from dramaturg_research.reproduction.paper import DataError, Omission, Reproduction, data_folder
from dramaturg_research.reproduction.proscript.people import read_sheets
from dramaturg_research.reproduction.proscript.sheets import (
    HUMAN,
    ORDERS,
    REVISIONS,
    SCRIPT_TAG,
    VOTES,
    read_orders,
    write_orders,
    write_sheets,
)
from dramaturg_research.reproduction.proscript.tables import (
    Predicted,
    degrees,
    figure_3,
    figure_5,
    pooled_degree,
    table_1,
    table_2,
)
from dramaturg_research.reproduction.session import Session

if TYPE_CHECKING:
    from dramaturg.api.evaluation.v1.graphs_pb2 import GraphTask
    from dramaturg.api.generation.v1.edge_service_pb2 import EdgeMethod
    from dramaturg.api.graph.v1.graph_service_pb2_grpc import GraphServiceAsyncStub

ROLES = ("author", "edges", "graph", "alignment", "embedding")
"""The roles that a gateway must serve."""

TITLE = "proScript: Partially Ordered Scripts Generation (Sakaguchi et al. 2021)"
SHEETS = "sheets"
"""The folder of the sheets, below that of the reproduction."""
DEV = "proscript_dev.json"
"""The released development part."""
TEST = "proscript_test.json"
"""The test part, in the form of the development part. Optional."""
TRAIN = "proscript_simple_train.json"
"""The released train part, where some roots are left out. Optional."""
PREDICTIONS, REFERENCES, PUBLISHED = (
    "results_v4-flash.json",
    "reference_for_eval_summary.json",
    "eval_summary_v4-flash.json",
)
"""Predictions of a model, their references, and their published summary. Optional."""

_ROOT = "root"
_POOLED = "pooled_degree"
_NEAREST = "nearest-references"
_DEFAULT, _PAIRWISE = edge_service_pb2.EDGE_METHOD_UNSPECIFIED, edge_service_pb2.EDGE_METHOD_PAIRWISE
_CONCURRENT_DISTANCES = 8
_TASKS = {
    "generate": graphs_pb2.GRAPH_TASK_GENERATE,
    "pipeline": graphs_pb2.GRAPH_TASK_PIPELINE,
}


async def reproduce(session: Session, folder: Path) -> Reproduction:
    """Reproduces Tables 1 to 4 and Figures 3, 5, 7 and 8."""
    place = data_folder(folder, "proscript", DEV)
    rows = _read(place / DEV)
    made = Reproduction(TITLE, f"Data: {len(rows)} scripts of {place.name}/{DEV}.")
    service = GraphServiceStub(session.client.channel)
    test = _read(place / TEST) if (place / TEST).exists() else []
    try:
        drawn = await _random_pairs(service, session.selected(rows), session.seed)
        random = await _score(service, drawn)
        drawn_test = await _random_pairs(service, session.selected(test), session.seed) if test else []
        random_test = await _score(service, drawn_test) if test else pb.ScoreEdgesResponse()
        random_distances = None if session.dry_run else await _measure_random(session, service, drawn)
        released = await released_predictions(service, place)
        given = {file.name: await _score_file(service, file, place / DEV) for file in session.predictions}
        people = await _score_people(session, service, [row.reference for row in rows])
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    edges: Summary | None = None
    predicted = {"": Predicted(None, None, random, random_test)}
    if not session.offline:
        for name, method in (("", _DEFAULT), *([("pairwise", _PAIRWISE)] if session.pairwise else [])):
            predicted[name] = await _predict(session, rows, test, name, method, predicted[""])
        edges = predicted[""].dev
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
        nearest = {} if session.dry_run else await _nearest(session, rows)
        made.tables += [
            table_1(predicted, session, given, people),
            table_2(written, random_distances, session, nearest),
        ]
        if session.out is not None and not session.dry_run:
            scripts = await _scripts(session)
            write_sheets(session.out, session.sheets or session.out / SHEETS, scripts, session.seed)
    else:
        made.tables += [
            table_1(predicted, session, given, people),
            table_2({}, random_distances, session, {}),
        ]
        made.omissions.append(
            Omission("The rows of models in Tables 1 and 2", "No model is named (--offline).")
        )
    made.tables.append(degrees(_parts(place, [row.reference for row in rows])))
    if released is not None:
        made.tables.append(released)
    made.figures += [figure_3(place / DEV), figure_5(edges, random, session, people)]
    made.omissions += _OMISSIONS
    found: frozenset[str] = frozenset()
    if session.out is not None:
        sheets = session.sheets or session.out / SHEETS
        try:
            found = await read_sheets(session, service, session.out, sheets, made)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
    if people is not None:
        found |= {ORDERS}
    made.omissions += [omission for sheet, omission in _UNREAD.items() if sheet not in found]
    return made


async def _score_people(
    session: Session, service: GraphServiceAsyncStub, references: Sequence[ScriptGraph]
) -> pb.ScoreEdgesResponse | None:
    """Writes the sheet of shuffled events and scores the completed ones. None: there are none."""
    if session.out is None or session.dry_run:
        return None
    sheets = session.sheets or session.out / SHEETS
    drawn = session.selected(range(len(references)))
    write_orders(session.out, sheets, {index: references[index] for index in drawn}, session.seed)
    try:
        pairs = await read_orders(service, session.out, sheets, references)
    except LineError as error:
        raise DataError(str(error)) from error
    return await _score(service, pairs) if pairs else None


async def _predict(
    session: Session,
    dev: Sequence[EvaluateGraphsRequest],
    test: Sequence[EvaluateGraphsRequest],
    name: str,
    method: EdgeMethod.ValueType,
    random: Predicted,
) -> Predicted:
    """The predictions of all models by a method, on the development part and, if there is one, the test's."""
    options = GraphsRunOptions(task=graphs_pb2.GRAPH_TASK_PREDICT_EDGES, method=method)
    spec = RunSpec(models=session.models, graphs=options)
    run = f"predict-edges-{name}" if name else "predict-edges"
    found = await session.run(run, spec, dev, session.options([DEGREE]))
    on_test = await session.run(f"{run}-test", spec, test, session.options([DEGREE])) if test else None
    return Predicted(found, on_test, random.random, random.random_test)


async def _nearest(
    session: Session, rows: Sequence[EvaluateGraphsRequest]
) -> Mapping[tuple[str, str], Estimate]:
    """The mean distance of each approach to the nearest reference of the scenario, by task and model."""
    alike: dict[str, list[ScriptGraph]] = {}
    for row in rows:
        alike.setdefault(_subject(row.reference), []).append(row.reference)
    least: dict[tuple[str, str, int], int] = {}
    asked: list[EvaluateGraphsRequest] = []
    for task in _TASKS:
        for sample in await session.samples(task):
            for one in sample.graphs.graphs:
                if not one.HasField("distance"):
                    continue
                place = task, one.model, sample.index
                least[place] = one.distance.distance
                for other in alike[_subject(sample.graphs.reference)]:
                    if not one.graph.events:
                        # Every event and edge of a reference is inserted into a script without events.
                        least[place] = min(least[place], len(other.events) + len(other.edges))
                    elif other != sample.graphs.reference:
                        row = EvaluateGraphsRequest(reference=other, task=graphs_pb2.GRAPH_TASK_GENERATE)
                        row.graphs.add(model=one.model, graph=one.graph)
                        row.tags.update({"task": task, "sample": str(sample.index)})
                        asked.append(row)
    if asked:
        options = GraphsRunOptions(
            task=graphs_pb2.GRAPH_TASK_GENERATE, distance_mode=pb.DISTANCE_MODE_PROSCRIPT
        )
        await session.run(_NEAREST, RunSpec(graphs=options), asked, limited=False)
        for sample in await session.samples(_NEAREST):
            for one in sample.graphs.graphs:
                place = sample.graphs.tags["task"], one.model, int(sample.graphs.tags["sample"])
                if one.HasField("distance"):
                    least[place] = min(least[place], one.distance.distance)
    summary = await session.summarize(
        _measured(place, _TASKS[task], model, pb.MeasureEditDistanceResponse(upper_bound=distance))
        for place, ((task, model, _), distance) in enumerate(least.items())
    )
    return {(one.task, one.model): one.distances[0].mean for one in summary.graphs.figures}


def _measured(
    index: int, task: GraphTask.ValueType, model: str, distance: pb.MeasureEditDistanceResponse
) -> RunSample:
    """A sample with one distance."""
    graphs = [MeasuredGraph(model=model, graph=ScriptGraph(), distance=distance)]
    result = GraphsResult(task=task, graphs=graphs)
    return RunSample(index=index, state=SAMPLE_STATE_SUCCEEDED, graphs=result)


def _subject(graph: ScriptGraph) -> str:
    return " ".join(graph.scenario.casefold().split())


_OMISSIONS = (
    Omission(
        "Table 1, the paper's models and people; the parts of the test data by domain",
        f"Their outputs were not released. The test part is read where {TEST} is among the data; it has no "
        "domains. The printed figures are shown.",
    ),
    Omission(
        "Tables 2 to 4 and Figures 7 and 8 of the paper's scripts",
        "The generated scripts, their revisions and the votes were not released. The random baseline of the "
        "paper is of its own scripts.",
    ),
    Omission(
        "Figure 3, the train and test parts",
        "The durations are those of the development part. The paper prints no values.",
    ),
)
_UNREAD = {
    ORDERS: Omission(
        "Table 1 and Figure 5, people of this run",
        "There is no order of events, so the printed row of people stands alone. People complete copies of "
        "sheets/orders.jsonl.",
    ),
    VOTES: Omission(
        "Figure 7, votes on pairs of scripts",
        "There is no vote, so the printed shares stand alone. A run with models writes "
        "sheets/votes.csv; people complete copies of it.",
    ),
    REVISIONS: Omission(
        "Table 2 with revisions, Tables 3 and 4, Figure 8",
        "There is no revision, so the printed values stand alone. A run with models writes "
        "sheets/revisions.jsonl; people complete copies of it. Table 2 has the distances to the reference of "
        "the data, which differs from a script more than a revision of it does.",
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
    for row in conversion.requests:
        row.tags[DEGREE] = pooled_degree(row.tags[DEGREE])
    return conversion.requests


def _parts(place: Path, dev: Sequence[ScriptGraph]) -> Mapping[str, Sequence[ScriptGraph]]:
    """The scripts of the released parts, each with a root."""
    if not (place / TRAIN).exists():
        return {"dev": dev}
    train = [row.reference for row in _read(place / TRAIN)]
    for graph in train:
        later = {edge.target_id for edge in graph.edges}
        sources = [event.id for event in graph.events if event.id not in later]
        graph.events.add(id=_ROOT, text=_ROOT)
        for source in sources:
            graph.edges.add(source_id=_ROOT, target_id=source)
    return {"dev": dev, "train": train}


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


async def _random_pairs(
    service: GraphServiceAsyncStub, rows: Sequence[EvaluateGraphsRequest], seed: int
) -> Sequence[pb.GraphPair]:
    """Random graphs over the events of the references, each with its reference."""
    references = [row.reference for row in rows]
    drawn = await draw_baselines(service, references, pb.BASELINE_KIND_RANDOM_DAG, seed)
    return [
        pb.GraphPair(id=str(index), predicted=graph, reference=reference)
        for index, (graph, reference) in enumerate(zip(drawn, references, strict=True))
    ]


async def _score(service: GraphServiceAsyncStub, pairs: Sequence[pb.GraphPair]) -> pb.ScoreEdgesResponse:
    for pair in pairs:
        pair.tags[_POOLED] = pooled_degree(str(max_degree(pair.reference)))
    choices = pb.ScoreEdgesRequest(
        orientation=pb.ORIENTATION_AS_PRINTED, by=[_POOLED], cluster_tag=SCRIPT_TAG
    )
    return await score_pairs(service, choices, pairs)


async def _measure_random(
    session: Session, service: GraphServiceAsyncStub, pairs: Sequence[pb.GraphPair]
) -> DistanceFigures:
    turns = asyncio.Semaphore(_CONCURRENT_DISTANCES)

    async def measure(pair: pb.GraphPair) -> pb.MeasureEditDistanceResponse:
        async with turns:
            return await service.MeasureEditDistance(
                pb.MeasureEditDistanceRequest(
                    first=pair.predicted, second=pair.reference, mode=pb.DISTANCE_MODE_PROSCRIPT
                )
            )

    measured = await gather_all([measure(pair) for pair in pairs])
    summary = await session.summarize(
        _measured(index, graphs_pb2.GRAPH_TASK_GENERATE, "random", one) for index, one in enumerate(measured)
    )
    return summary.graphs.figures[0].distances[0]


async def _score_file(service: GraphServiceAsyncStub, file: Path, references: Path) -> FileScores:
    """The scores of predicted edges; a script without a prediction counts as a graph without edges.

    Raises:
        DataError: The file cannot be read, or has no prediction of a script.
    """
    request = pb.ScoreEdgesRequest(orientation=pb.ORIENTATION_AS_PRINTED)
    try:
        scores = await score_files(service, file, references, request, missing="empty")
    except FileError as error:
        raise DataError(str(error)) from error
    if len(scores.unanswered) == scores.response.summary.pair_count:
        raise DataError(f"{file}: has no prediction with the id of a script of {references.name}")
    return scores


async def released_predictions(service: GraphServiceAsyncStub, place: Path) -> Table | None:
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
        (name, estimate(getattr(found.macro, member), 5, f"{published[key]:.5f}"))
        for name, member, key in (
            ("Precision", "precision", "precision"),
            ("Recall", "recall", "recall"),
            ("F1", "f1", "f1"),
            ("IoU", "iou", "iou"),
            ("Edge difference", "edge_difference", "ged"),
        )
    ]
    model = PREDICTIONS.removeprefix("results_").removesuffix(".json")
    return Table(
        f"Released predictions of a model ({PREDICTIONS})",
        [Column("Model"), *(Column(name) for name, _ in cells)],
        [Row([words(model), *(cell for _, cell in cells)])],
        name="released-predictions",
        notes=["Precision and recall are by the convention."],
        printed_note="In brackets: the published summary of the predictions.",
    )


def _published(file: Path) -> Mapping[str, float]:
    try:
        overall = json.loads(file.read_text(encoding="utf-8"))["overall"]
        return {**overall["edge_metrics_mean"], **overall["exact_match"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: has no overall edge_metrics_mean and exact_match") from error
