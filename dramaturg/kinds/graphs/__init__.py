"""The results of script graphs (proScript): rows f1, exact_match and edit_distance for each graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_JUDGE_UNAVAILABLE,
    ABSTAIN_REASON_NOT_APPLICABLE,
    OUTCOME_FAIL,
    OUTCOME_PASS,
    AbstainReason,
)
from dramaturg.api.evaluation.v1.graphs_pb2 import (
    GRAPH_TASK_GENERATE,
    GRAPH_TASK_PIPELINE,
    GraphsResult,
    MeasuredGraph,
)
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.graph.v1.graph_service_pb2 import MeasureEditDistanceResponse
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.judge.provenance import total_usage
from dramaturg.judge.roles import RUBRIC_JUDGE
from dramaturg.results.kind import (
    Comparability,
    JudgeAnswer,
    Judgement,
    ResultKind,
    row_answers,
    row_judgement,
    set_abstention,
)

EDIT_NAMES = {
    "deleted_events": "V-Del",
    "inserted_events": "V-Ins",
    "replaced_events": "V-Rep",
    "deleted_edges": "E-Del",
    "inserted_edges": "E-Ins",
    "replaced_edges": "E-Rep",
}
"""The edits (``graph.v1.EditCounts``), as Table 2 of proScript names them."""


def _rows(result: GraphsResult, texts: bool) -> Iterator[RunResult]:
    """The rows of each graph, in order, for each measure that the task or any graph has."""
    del texts
    writes = result.task in {GRAPH_TASK_GENERATE, GRAPH_TASK_PIPELINE}
    scored = not writes or any(graph.HasField("score") for graph in result.graphs)
    compared = writes or any(graph.HasField("distance") for graph in result.graphs)
    both = any(graph.HasField("text_distance") for graph in result.graphs)
    embedded = any(graph.HasField("embedding_distance") for graph in result.graphs)
    for graph in result.graphs:
        rows = [
            *(_scores(graph, result.reference, writes=writes) if scored else ()),
            *(_distance(graph, both=both) if compared else ()),
            *(_embedding_distance(graph) if embedded else ()),
        ]
        for row in rows:
            row.model = graph.model
            if not row.abstain_reason:
                row.failure_reason = graph.failure_reason
            row.rationale = row.rationale or "\n".join(graph.failures)
            if graph.provenances:
                row.provenance.CopyFrom(_merge(graph.provenances))
            yield row


def _scores(graph: MeasuredGraph, reference: ScriptGraph, *, writes: bool) -> Iterator[RunResult]:
    f1, exact = RunResult(measure="f1"), RunResult(measure="exact_match")
    if graph.HasField("score"):
        if graph.score.HasField("measures"):
            f1.value = graph.score.measures.f1
        else:  # neither graph has an edge, and the empty-graph rule leaves the score undefined
            set_abstention(f1, ABSTAIN_REASON_NOT_APPLICABLE)
        exact.outcome = OUTCOME_PASS if graph.score.exact_match else OUTCOME_FAIL
        exact.value = float(graph.score.exact_match)
    else:
        for row in (f1, exact):
            set_abstention(row, graph.abstain_reason or _why_unscored(graph, reference, writes=writes))
    yield f1
    yield exact


def _why_unscored(
    measured: MeasuredGraph, reference: ScriptGraph, *, writes: bool
) -> AbstainReason.ValueType:
    """NOT_APPLICABLE if the graph has other events than the reference, else the graph service failed."""
    texts = {event.id: event.text for event in reference.events}
    same = all(event.text in {"", texts.get(event.id)} for event in measured.graph.events)
    if measured.failure_reason:
        same = not writes
    return ABSTAIN_REASON_JUDGE_UNAVAILABLE if same else ABSTAIN_REASON_NOT_APPLICABLE


def _distance(graph: MeasuredGraph, *, both: bool) -> Iterator[RunResult]:
    """The cost of the best mapping found, and the lower bound: the true distance lies between the two.

    Args:
        graph: The graph.
        both: Whether there is also a row for the distance by text.
    """
    row, bound = RunResult(measure="edit_distance"), RunResult(measure="edit_distance/lower_bound")
    if not graph.HasField("distance"):
        for one in (row, bound):
            set_abstention(one, graph.abstain_reason or ABSTAIN_REASON_JUDGE_UNAVAILABLE)
    else:
        distance = graph.distance
        row.value, bound.value = distance.distance, distance.distance
        if not distance.proven:
            row.value, bound.value = distance.upper_bound, distance.lower_bound
            row.label = f"{distance.lower_bound}..{distance.upper_bound}"
            row.rationale = "The distance lies between these bounds; neither was proven in time."
    yield row
    yield bound
    if both:
        by_text = graph.text_distance if graph.HasField("text_distance") else None
        yield _other_distance(graph, "text", by_text)


def _embedding_distance(graph: MeasuredGraph) -> Iterator[RunResult]:
    by_meaning = graph.embedding_distance if graph.HasField("embedding_distance") else None
    yield _other_distance(graph, "embeddings", by_meaning)


def _other_distance(
    graph: MeasuredGraph, matching: str, distance: MeasureEditDistanceResponse | None
) -> RunResult:
    """The cost of the best mapping found with the events matched by another rule."""
    row = RunResult(measure=f"edit_distance/{matching}")
    if graph.HasField("distance") and not graph.HasField("event_matches"):  # events of the reference
        distance = graph.distance
    if distance is None:
        set_abstention(row, graph.abstain_reason or ABSTAIN_REASON_JUDGE_UNAVAILABLE)
    else:
        row.value = distance.upper_bound
    return row


def _merge(provenances: Sequence[Provenance]) -> Provenance:
    """Merges provenances: the last one's name, the prompts and completions of all, summed usage."""
    if len(provenances) == 1:
        return provenances[0]
    merged = Provenance()
    for provenance in provenances:
        merged.MergeFrom(provenance)
    merged.usage.CopyFrom(total_usage(provenance.usage for provenance in provenances))
    merged.latency.FromMicroseconds(sum(provenance.latency.ToMicroseconds() for provenance in provenances))
    return merged


def _judgements(result: GraphsResult, rows: Iterable[RunResult]) -> Iterator[Judgement]:
    for row in rows:
        if row.measure == "f1":
            yield row_judgement(result.reference.id, row.model, "edges", row)


def _answers(result: GraphsResult, rows: Iterable[RunResult]) -> Iterator[JudgeAnswer]:
    yield from row_answers(result, rows)
    for graph in result.graphs:
        # Whether an answer abstained is known of all answers on a graph together.
        abstained = not graph.HasField("distance")
        for made in graph.event_matches.provenances:
            yield JudgeAnswer(RUBRIC_JUDGE.name, made.registered_name, made, abstained)


GRAPHS = ResultKind(
    name="graphs",
    json_member="reference",
    rows=_rows,
    ranking="By the mean F1 of the edges.",
    primary_measure="f1",
    answers=_answers,
    comparability=Comparability("F1 of edges", _judgements, scale=(0.0, 1.0), shares=False),
    secondary_measure="edit_distance",  # of written graphs, whose events differ from the reference's
)
