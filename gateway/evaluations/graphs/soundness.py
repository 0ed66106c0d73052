"""Checks that the ids of a graph name its events."""

from __future__ import annotations

from collections.abc import Iterator

from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.service.errors import Violation
from dramaturg.service.validation import violations

MOST_ID, MOST_TEXT = 200, 20_000
"""The maximum code points of an event's id and text (``graph.v1.Event``)."""


def check_graph(field: str, graph: ScriptGraph) -> Iterator[Violation]:
    """Finds violations that every service refuses. Cyclic graphs are valid and measured.

    Args:
        field: The path of the graph.
        graph: The graph.
    """
    found = violations(graph)
    yield from (Violation(f"{field}.{one.field}", one.description) for one in found)
    if found:
        return
    seen: set[str] = set()
    for index, event in enumerate(graph.events):
        path = f"{field}.events[{index}]"
        yield from _check_id(f"{path}.id", event.id)
        if event.id in seen:
            yield Violation(f"{path}.id", f"is {event.id!r}, as is that of an earlier event")
        if len(event.text) > MOST_TEXT:
            yield Violation(f"{path}.text", f"has {len(event.text)} code points; at most {MOST_TEXT}")
        seen.add(event.id)
    for index, edge in enumerate(graph.edges):
        yield from _check_id(f"{field}.edges[{index}].source_id", edge.source_id)
        yield from _check_id(f"{field}.edges[{index}].target_id", edge.target_id)


def _check_id(field: str, event: str) -> Iterator[Violation]:
    if not event.strip():
        yield Violation(field, "is required")
    elif len(event) > MOST_ID:
        yield Violation(field, f"has {len(event)} code points; at most {MOST_ID}")
