"""The kind ``decisions`` of ``dramaturg eval``, and how rows are evaluated that models answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.cli.evaluation import Evaluation, Job, evaluate_file
from dramaturg.cli.judge_selection import parse_judges, set_judges
from dramaturg.cli.kind_options import KindOptions
from dramaturg.cli.summaries import summary_options

USED = ("model", "judge", "group_by")
"""The options of the kind."""


def evaluate(
    own: KindOptions,
    job: Job,
    request: type[Any] = EvaluateDecisionsRequest,
    roles: Sequence[str] = ("author", "alignment"),
) -> None:
    """Evaluates decisions, or rows of another kind with ``models`` and ``judges`` alone.

    Errors are those of ``evaluate_file``.

    Args:
        own: The options of the kind.
        job: The options of every kind.
        request: The type of a row.
        roles: The roles that are called.

    Raises:
        ValueError: A judge is malformed.
    """
    judges = parse_judges(own.judge or ())

    def apply(row: Any) -> None:
        set_judges(row.judges, judges, {})
        if own.model:
            row.models[:] = own.model

    options = summary_options(own.group_by)
    evaluate_file(job, Evaluation(request=request, roles=roles, apply=apply, options=options))
