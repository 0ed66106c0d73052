"""Edges of script graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dramaturg.api.evaluation.v1.label_service_pb2 import LABEL_TASK_VERDICT, LabelItem, LabelText
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from gateway.runs.labels.drawn import VERDICTS, Context, Drawn, LabelledKind
from gateway.runs.store.tables import sanitize


def _graph(row: RunResult) -> Drawn:
    """The graph of any of its measures."""
    return Drawn(row.sample_index, "", "", row.model, "", None, expands=True)


def _edges(graph: Drawn, sample: RunSample) -> Iterator[Drawn]:
    """The edges of a graph; the value says whether the reference has the edge too."""
    wanted = {(edge.source_id, edge.target_id) for edge in sample.graphs.reference.edges}
    for one in sample.graphs.graphs:
        if sanitize(one.model) != graph.model:
            continue
        for edge in one.graph.edges:
            known = float((edge.source_id, edge.target_id) in wanted) if one.HasField("score") else None
            yield replace(graph, candidate_id=_edge_id(edge.source_id, edge.target_id), judged=known)


def _edge_id(source: str, target: str) -> str:
    return f"{source}->{target}"


def _build(one: Drawn, sample: RunSample, _: Context) -> LabelItem | None:
    reference = sample.graphs.reference
    for measured in sample.graphs.graphs:
        for edge in measured.graph.edges if sanitize(measured.model) == one.model else ():
            if _edge_id(edge.source_id, edge.target_id) == one.candidate_id:
                break
        else:
            continue
        texts = {event.id: event.text for event in reference.events}
        texts |= {event.id: event.text for event in measured.graph.events if event.text}
        listed = [texts.get(event.id, event.id) for event in measured.graph.events]
        name = reference.id or reference.scenario
        return LabelItem(
            item="/".join(part for part in (name, one.model, one.candidate_id) if part),
            question="Does the first event have to come before the second?",
            texts=[
                LabelText(title="First event", text=texts.get(edge.source_id, edge.source_id)),
                LabelText(title="Second event", text=texts.get(edge.target_id, edge.target_id)),
                LabelText(title="Scenario", text=reference.scenario or reference.id),
                LabelText(title="All events", steps=listed),
            ],
            choices=VERDICTS,
        )
    return None


LABELLED = LabelledKind({LABEL_TASK_VERDICT: _graph}, _build, expand=_edges, unjudged=True)
