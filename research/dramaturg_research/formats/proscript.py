"""The released format of proScript (Sakaguchi et al. 2021): one record for each script graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest, GivenGraph
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.graphs.files import RecordError, Row, read_record
from dramaturg.service.validation import violations

DEGREE = "degree"
"""The tag of the largest number of edges into, or out of, one event (proScript, section 6)."""
DOMAIN = "domain"
"""The member of a record that becomes a tag wherever it is."""


class Skipped(NamedTuple):
    """An invalid record."""

    source: str
    """The file's name."""
    id: str
    """The record's id."""
    reason: str
    """The reason."""


@dataclass
class Conversion:
    """The result of a conversion."""

    requests: list[EvaluateGraphsRequest] = field(default_factory=list)
    """One for each record, in order."""
    skipped: list[Skipped] = field(default_factory=list)
    """The invalid records and predictions."""


def convert_rows(
    references: Sequence[Row],
    *,
    source: str = "",
    tags: Sequence[str] = (),
    predictions: Mapping[str, Sequence[Row]] | None = None,
) -> Conversion:
    """Makes a request of each record: of its graph and of what models predicted for the same id.

    Args:
        references: The records of the references.
        source: The name of their file, for messages.
        tags: Members with a single value that become tags; dots lead to members of members.
        predictions: Records of predictions by model.
    """
    conversion = Conversion()
    given = {
        model: {row.id: graph for row in rows if (graph := _graph(row, model, conversion)) is not None}
        for model, rows in (predictions or {}).items()
    }
    for row in references:
        graph = _graph(row, source, conversion)
        if graph is None:
            continue
        request = EvaluateGraphsRequest(reference=graph, tags={DEGREE: str(max_degree(graph))})
        for name in (DOMAIN, *tags):
            if (value := row.tag(name)) is not None:
                request.tags[name] = value
        request.graphs.extend(
            GivenGraph(model=model, graph=graphs[row.id])
            for model, graphs in given.items()
            if row.id in graphs
        )
        if broken := violations(request):
            reason = f"{broken[0].field}: {broken[0].description}"
            conversion.skipped.append(Skipped(source, row.id, reason))
        else:
            conversion.requests.append(request)
    return conversion


def max_degree(graph: ScriptGraph) -> int:
    """The largest number of different edges into, or out of, one event."""
    edges = {(edge.source_id, edge.target_id) for edge in graph.edges}
    ends = Counter(("out of", source) for source, _ in edges) + Counter(("into", end) for _, end in edges)
    return max(ends.values(), default=0)


def _graph(row: Row, source: str, conversion: Conversion) -> ScriptGraph | None:
    """A record's graph; None, and why, where it is none or a part of it cannot be read."""
    try:
        record = read_record(row.record)
    except RecordError as error:
        conversion.skipped.append(Skipped(source, row.id, str(error)))
        return None
    if record.unread:
        conversion.skipped.append(Skipped(source, row.id, f"cannot read {record.unread[0]}"))
        return None
    return record.message(row.id)
