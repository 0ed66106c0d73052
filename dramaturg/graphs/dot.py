"""Writes a script graph in the DOT language."""

from __future__ import annotations

from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph


def to_dot(graph: ScriptGraph) -> str:
    """Encodes a graph as a digraph: ``label`` is an event's text, ``minutes`` its duration.

    ``GraphService.ParseGraph`` reads the output.
    """
    lines = ["digraph {", "  node [shape=box, style=rounded];"]
    if graph.scenario:
        lines.append(f"  label={_quoted(graph.scenario)};")
    for event in graph.events:
        attributes = f"label={_quoted(event.text or event.id)}"
        if event.HasField("duration_minutes"):
            attributes += f", minutes={event.duration_minutes!r}"
        lines.append(f"  {_quoted(event.id)} [{attributes}];")
    lines += [f"  {_quoted(edge.source_id)} -> {_quoted(edge.target_id)};" for edge in graph.edges]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
