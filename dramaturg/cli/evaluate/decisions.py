"""The kind ``decisions`` of ``dramaturg eval``."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.cli.evaluate.options import KindOptions
from dramaturg.cli.evaluation import Evaluation, Job, evaluate_file
from dramaturg.cli.judge_selection import parse_judges, set_judges
from dramaturg.cli.summaries import summary_options

USED = ("model", "judge", "group_by")
"""The options of the kind."""


def evaluate(own: KindOptions, job: Job) -> None:
    """Evaluates decisions. Errors are those of ``evaluate_file``.

    Raises:
        ValueError: A judge is malformed.
    """
    judges = parse_judges(own.judge or ())

    def apply(request: EvaluateDecisionsRequest) -> None:
        set_judges(request.judges, judges, {})
        if own.model:
            request.models[:] = own.model

    evaluate_file(
        job,
        Evaluation(
            request=EvaluateDecisionsRequest,
            roles=("author", "alignment"),
            apply=apply,
            options=summary_options(own.group_by),
        ),
    )
