"""Cycles of script graphs."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph


def find_cycle(graph: ScriptGraph) -> Sequence[str]:
    """The ids of the events of a cycle, the first one again at the end. Empty: the graph has no cycle."""
    before: dict[str, list[str]] = {}
    for edge in graph.edges:
        before.setdefault(edge.target_id, []).append(edge.source_id)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        return [str(event) for event in error.args[1]]
    return ()
