"""The synchronous parts of the methods: decode, compute, encode."""

from __future__ import annotations

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.graphs.parsing.formats import parse
from dramaturg.service.errors import invalid
from services.graph.check import canonical_form, check
from services.graph.codec.graphs import (
    decode_dialect,
    decode_event,
    decode_graph,
    encode_graph,
    encode_parsed,
    encode_report,
)
from services.graph.codec.scores import (
    decode_choices,
    decode_score,
    encode_choices,
    encode_score,
    encode_summary,
)
from services.graph.score import group, score_pair, summarise


def parse_graph(request: pb.ParseGraphRequest) -> pb.ParseGraphResponse:
    """Parses a graph.

    Raises:
        TooLargeError: The graph exceeds a limit.
    """
    return encode_parsed(parse(request.text, decode_dialect(request.dialect)))


def check_graph(request: pb.CheckGraphRequest) -> pb.CheckGraphResponse:
    """Checks a graph and builds its canonical form.

    Raises:
        ServiceError: INVALID_ARGUMENT: the request is invalid.
    """
    graph = decode_graph(request.graph, "graph")
    if request.root_id and request.root_id not in graph:
        raise invalid("root_id", f"{request.root_id!r} is not an event of the graph")
    report = check(graph, request.root_id or None)
    response = pb.CheckGraphResponse(report=encode_report(report))
    if request.HasField("canonical_form"):
        form = request.canonical_form
        root = decode_event(form.root, "canonical_form.root") if form.HasField("root") else None
        leaf = decode_event(form.leaf, "canonical_form.leaf") if form.HasField("leaf") else None
        if report.acyclic:
            try:
                response.canonical.CopyFrom(encode_graph(canonical_form(graph, root, leaf)))
            except ValueError as error:
                raise invalid("canonical_form", str(error)) from error
    return response


def score_edges(request: pb.ScoreEdgesRequest) -> pb.ScoreEdgesResponse:
    """Scores pairs of graphs and aggregates.

    Raises:
        ServiceError: INVALID_ARGUMENT: the request is invalid.
    """
    choices = decode_choices(request)
    predicted = [
        decode_graph(pair.predicted, f"pairs[{index}].predicted") for index, pair in enumerate(request.pairs)
    ]
    scores = [
        score_pair(
            pair.id,
            graph,
            decode_graph(pair.reference, f"pairs[{index}].reference"),
            choices,
            dict(pair.tags),
        )
        for index, (graph, pair) in enumerate(zip(predicted, request.pairs, strict=True))
    ]
    earlier = [
        decode_score(score, f"scored[{index}]", closure=choices.closure)
        for index, score in enumerate(request.scored)
    ]
    everything = [*earlier, *scores]
    response = encode_choices(choices)
    response.summary.CopyFrom(encode_summary(summarise(everything, choices), choices))
    if request.report_predicted:
        response.reports.extend(encode_report(check(graph, None)) for graph in predicted)
    for by in request.by:
        for value, members in group(everything, by).items():
            summary = encode_summary(summarise(members, choices), choices)
            response.groups.add(by=by, value=value, summary=summary)
    if not request.omit_scores:
        response.scores.extend(encode_score(score, choices) for score in scores)
    return response
