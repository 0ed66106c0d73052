"""``dramaturg runs create graphs``."""

from __future__ import annotations

from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.cli.evaluate.graphs import (
    CyclePolicyName,
    DistanceModeName,
    EventMatching,
    GraphOverrides,
    MatchThreshold,
    MethodName,
    TaskName,
    VoteCount,
)
from dramaturg.cli.runs.create.options import command_of


@command_of("graphs")
def graphs(
    task: Annotated[
        TaskName | None,
        typer.Option(help="The task of the models. Default: that of the row, else predict-edges."),
    ] = None,
    method: Annotated[MethodName | None, typer.Option(help="Method of edge prediction.")] = None,
    cycle_policy: Annotated[
        CyclePolicyName | None, typer.Option(help="Policy that breaks cycles of pairwise predictions.")
    ] = None,
    distance_mode: Annotated[DistanceModeName | None, typer.Option(help="Mode of the edit distance.")] = None,
    reduce: Annotated[bool, typer.Option("--reduce", help="Compare transitive reductions.")] = False,
    event_matching: EventMatching = None,
    match_threshold: MatchThreshold = None,
    vote_count: VoteCount = None,
) -> EvaluateGraphsRequest:
    """Creates a run that evaluates script graphs that models predict or write (proScript).

    For example:

        dramaturg runs create graphs dev.jsonl --model my-model --task pipeline
    """
    row = EvaluateGraphsRequest()
    GraphOverrides(
        task=task,
        method=method,
        cycle_policy=cycle_policy,
        distance_mode=distance_mode,
        reduce=reduce or None,
        event_matching=event_matching,
        match_threshold=match_threshold,
        vote_count=vote_count,
    ).apply(row)
    return row
