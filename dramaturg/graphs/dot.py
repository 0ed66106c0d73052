"""Writes a script graph in the DOT language."""

from __future__ import annotations

from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph


def to_dot(graph: ScriptGraph) -> str:
    """The graph as a digraph: an event's text is its ``label``, its duration its ``minutes``.

    What is written can be read again by ``GraphService.ParseGraph``.
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
