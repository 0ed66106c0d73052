"""The kind ``graphs`` of ``dramaturg eval``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1 import graphs_pb2
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.api.generation.v1 import edge_service_pb2
from dramaturg.api.graph.v1 import graph_service_pb2
from dramaturg.cli.evaluation import Evaluation, Job, evaluate_file
from dramaturg.cli.judge_selection import parse_judges, set_judges
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.options import GroupBy, ModelsUnderTest, UnusableOutputsAbstain
from dramaturg.cli.platform import fail
from dramaturg.cli.summaries import summary_options


class TaskName(StrEnum):
    """What models do (``evaluation.v1.GraphTask``)."""

    PREDICT_EDGES = "predict-edges"
    GENERATE = "generate"
    PIPELINE = "pipeline"


class MethodName(StrEnum):
    """How edges are predicted (``generation.v1.EdgeMethod``)."""

    END_TO_END = "end-to-end"
    PAIRWISE = "pairwise"


class CyclePolicyName(StrEnum):
    """How cycles are broken (``graph.v1.CyclePolicy``)."""

    PAPER_SCC = "paper-scc"
    MIN_FAS = "min-fas"


class DistanceModeName(StrEnum):
    """What counts as an edit (``graph.v1.DistanceMode``)."""

    PROSCRIPT = "proscript"
    STRUCTURAL = "structural"
    ANCHORED = "anchored"
    LABEL_FREE = "label-free"


class EventMatchingName(StrEnum):
    """How written events are matched with the reference's (``evaluation.v1.EventMatching``)."""

    TEXT = "text"
    EMBEDDINGS = "embeddings"
    JUDGE = "judge"


@dataclass(frozen=True, kw_only=True)
class GraphOptions:
    """The options of graphs; absent ones keep the row's value."""

    task: Annotated[
        TaskName | None,
        typer.Option(help="The task of the models. Default: that of the row, else predict-edges."),
    ] = None
    """What the models do."""
    method: Annotated[
        MethodName | None,
        typer.Option(help="Method of edge prediction. Default: that of the service."),
    ] = None
    """Method of edge prediction."""
    cycle_policy: Annotated[
        CyclePolicyName | None, typer.Option(help="Policy that breaks cycles of pairwise predictions.")
    ] = None
    """How cycles are broken."""
    distance_mode: Annotated[
        DistanceModeName | None,
        typer.Option(help="Mode of the edit distance. Default: proscript for written events."),
    ] = None
    """The mode of the edit distance, which is then measured for every task."""
    reduce: Annotated[
        bool | None,
        typer.Option("--reduce/--no-reduce", help="Compare transitive reductions. Default: that of the row."),
    ] = None
    """Whether graphs are reduced before they are compared."""
    event_matching: Annotated[
        EventMatchingName | None,
        typer.Option(
            help="Matching of written events in the distance. Default: embeddings, if they are served."
        ),
    ] = None
    """How written events are matched."""
    match_threshold: Annotated[
        float | None, typer.Option(min=-1, max=1, help="Least cosine of matched events. Default: 0.75.")
    ] = None
    """The least cosine of matched events."""
    vote_count: Annotated[
        int | None,
        typer.Option(
            min=1, max=25, help="Questions for each pair of events, without log-probabilities. Default: one."
        ),
    ] = None
    """The number of questions for each pair of events."""

    def apply(self, request: EvaluateGraphsRequest) -> None:
        """Sets them in a request."""
        if self.task is not None:
            request.task = graphs_pb2.GraphTask.Value(f"GRAPH_TASK_{_constant(self.task)}")
        if self.method is not None:
            request.method = edge_service_pb2.EdgeMethod.Value(f"EDGE_METHOD_{_constant(self.method)}")
        if self.cycle_policy is not None:
            name = f"CYCLE_POLICY_{_constant(self.cycle_policy)}"
            request.cycle_policy = graph_service_pb2.CyclePolicy.Value(name)
        if self.distance_mode is not None:
            name = f"DISTANCE_MODE_{_constant(self.distance_mode)}"
            request.distance_mode = graph_service_pb2.DistanceMode.Value(name)
        if self.reduce is not None:
            request.reduce = self.reduce
        if self.event_matching is not None:
            name = f"EVENT_MATCHING_{_constant(self.event_matching)}"
            request.event_matching = graphs_pb2.EventMatching.Value(name)
        if self.match_threshold is not None:
            request.match_threshold = self.match_threshold
        if self.vote_count is not None:
            request.vote_count = self.vote_count


@takes_groups
def graphs(
    own: GraphOptions,
    job: Job,
    model: ModelsUnderTest = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=NAME",
            help="The service of a role: author, edges, graph, embedding or rubric-judge.",
        ),
    ] = None,
    unusable_outputs_abstain: UnusableOutputsAbstain = False,
    group_by: GroupBy = None,
) -> None:
    """Evaluates script graphs that models predict or write (proScript).

    Each row is an EvaluateGraphsRequest (docs/reference/datasets.md), as "research convert proscript"
    writes them. All rows are checked before the first call. DIR/results.jsonl gets one GraphsResult a line
    and DIR/errors.jsonl the scripts that failed. A refused, empty or cut-off answer is measured as an empty
    graph. Scores are macro and micro, without abstentions, which are counted; macro F1 with abstentions as
    0 is reported too.

    Exit codes: 0 all scripts have a result, 1 some failed or nothing was judged, 2 wrong usage or rows,
    4 fewer than 0.9 of the judgements were made, 130 interrupted.

    For example:

        dramaturg eval dev.jsonl --model gpt-4o --model my-model --group-by degree

        dramaturg eval dev.jsonl --judge edges=trained --method pairwise --json

        dramaturg eval dev.jsonl --model my-model --task pipeline
    """
    try:
        judges = tuple(parse_judges(judge or ()))
    except ValueError as error:
        fail(str(error))
    if job.by_reference and own.reduce is False:
        fail("--by-reference excludes --no-reduce: rows may have reduce, and a run cannot unset it")

    def apply(request: EvaluateGraphsRequest) -> None:
        own.apply(request)
        set_judges(request.judges, judges, {})
        if model:
            request.models[:] = model
        if unusable_outputs_abstain:
            request.unusable_outputs_abstain = True

    evaluate_file(
        job,
        Evaluation(
            request=EvaluateGraphsRequest,
            roles=("author", "edges", "graph", "embedding", "rubric-judge"),
            apply=apply,
            options=summary_options(group_by),
        ),
    )


def _constant(name: str) -> str:
    return name.upper().replace("-", "_")
