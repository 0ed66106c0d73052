from __future__ import annotations

from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from dramaturg.graphs.files import to_dot


def test_quotes_and_line_breaks_of_texts_are_escaped() -> None:
    graph = ScriptGraph(
        scenario='say "hi"',
        events=[Event(id="1", text="a\\b\nc", duration_minutes=2.5), Event(id="2")],
        edges=[EventEdge(source_id="1", target_id="2")],
    )
    assert to_dot(graph).splitlines() == [
        "digraph {",
        "  node [shape=box, style=rounded];",
        '  label="say \\"hi\\"";',
        '  "1" [label="a\\\\b c", minutes=2.5];',
        '  "2" [label="2"];',
        '  "1" -> "2";',
        "}",
    ]
