"""Predictions for a file of scripts, in the format of ``dramaturg research graphs score``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dramaturg.graphs.files import Row
from dramaturg.graphs.records import GraphRecord, RecordError, read_record
from services.edges.inference import WindowError, infer
from services.edges.model import TrainedModel
from services.edges.order import decode
from services.edges.pairs import MAX_EVENTS


def predict_rows(
    model: TrainedModel, rows: Iterable[Row], threshold: float, advance: Callable[[], None]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Predicts the edges of scripts.

    Args:
        model: The model.
        rows: Records of events; their edges are ignored.
        threshold: Edges with a probability above this are predicted.
        advance: Called after each row.

    Returns:
        A record for each script with ``id``, ``scenario``, ``unordered_nodes`` and ``edges``, the format of
        proScript's published predictions; and the reason for each failed row, by id.
    """
    predictions, failures = [], {}
    for row in rows:
        try:
            predictions.append({"id": row.id, **_predict(model, read_record(row.record), threshold)})
        except (RecordError, WindowError) as problem:
            failures[row.id] = str(problem)
        advance()
    return predictions, failures


def _predict(model: TrainedModel, record: GraphRecord, threshold: float) -> dict[str, Any]:
    ids, texts = list(record.events), list(record.events.values())
    if not record.scenario.strip():
        raise RecordError("has no scenario")
    if not 2 <= len(ids) <= MAX_EVENTS:
        raise RecordError(f"has {len(ids)} events; 2 to {MAX_EVENTS} can be ordered")
    if not all(text.strip() for text in texts):
        raise RecordError("has an event without text")
    edges = decode(infer(model.encoder, record.scenario, texts), len(ids), threshold)
    return {
        "scenario": record.scenario,
        "unordered_nodes": record.events,
        "edges": [f"{ids[source]}->{ids[target]}" for source, target in sorted(edges)],
    }
