"""The shape and the parser of edges between numbered events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dramaturg.api.graph.v1.script_graph_pb2 import EventEdge
from dramaturg.judge.shapes import ListOf, Number, Record

EDGES = ListOf(
    Record(
        {
            "before": Number("the number of an event"),
            "after": Number("the number of an event that cannot begin before that one is over"),
        }
    )
)
"""The shape of a list of edges."""


class ReadEdges(NamedTuple):
    """The edges of an answer."""

    edges: list[EventEdge]
    """Each edge once, in the order of the answer."""
    dropped: list[str]
    """The dropped edges, in words."""


def read_edges(entries: Sequence[Any], ids: Mapping[int, str]) -> ReadEdges:
    """Reads edges between numbered events.

    Edges of unknown events, edges from an event to itself and repeated edges are dropped and reported.

    Args:
        entries: The edges, with the members "before" and "after".
        ids: The events' ids by number.
    """
    edges: dict[tuple[str, str], EventEdge] = {}
    dropped: list[str] = []
    for entry in entries:
        members = entry if isinstance(entry, Mapping) else {}
        ends = _End.of(members.get("before"), ids), _End.of(members.get("after"), ids)
        pair = ends[0].id, ends[1].id
        said = f"edge from event {ends[0]} to event {ends[1]}"
        unknown = [end for end in ends if not end.id]
        if unknown:
            dropped.append(f"{said}: there is no event {unknown[0]}")
        elif pair[0] == pair[1]:
            dropped.append(f"{said}: an event does not come before itself")
        elif pair in edges:
            dropped.append(f"{said}: it is repeated")
        else:
            edges[pair] = EventEdge(source_id=pair[0], target_id=pair[1])
    return ReadEdges(list(edges.values()), dropped)


class _End(NamedTuple):
    answered: Any
    id: str
    """Returns the id of an event, or "" where there is no such event."""

    @classmethod
    def of(cls, answered: Any, ids: Mapping[int, str]) -> _End:
        # In Python, True is an int.
        is_number = isinstance(answered, int) and not isinstance(answered, bool)
        return cls(answered, ids.get(answered, "") if is_number else "")

    def __str__(self) -> str:
        return repr(self.id) if self.id else f"number {self.answered}"
