"""The kind ``graphs`` of ``dramaturg eval``."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.cli.evaluate.options import KindOptions
from dramaturg.cli.evaluation import Evaluation, Job, evaluate_file
from dramaturg.cli.judge_selection import parse_judges, set_judges
from dramaturg.cli.summaries import summary_options

USED = ("model", "judge", "group_by")
"""The options of the kind."""


def evaluate(own: KindOptions, job: Job) -> None:
    """Evaluates graphs. Errors are those of ``evaluate_file``.

    Raises:
        ValueError: A judge is malformed.
    """
    judges = parse_judges(own.judge or ())

    def apply(request: EvaluateGraphsRequest) -> None:
        set_judges(request.judges, judges, {})
        if own.model:
            request.models[:] = own.model

    evaluate_file(
        job,
        Evaluation(
            request=EvaluateGraphsRequest,
            roles=("author", "edges", "graph", "embedding", "rubric-judge"),
            apply=apply,
            options=summary_options(own.group_by),
        ),
    )
