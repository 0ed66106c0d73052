"""The kind ``scripts`` of ``dramaturg eval``."""

from __future__ import annotations

from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.cli.evaluation import Evaluation, Job, JudgedRows, evaluate_file
from dramaturg.cli.judge_selection import Overrides
from dramaturg.cli.kind_options import KindOptions
from dramaturg.cli.summaries import summary_options
from dramaturg.judge.roles import AUTHOR, SCRIPT_JUDGE, SYNTHESIZE

USED = ("model", "judge", "judge_model", "group_by")
"""The options of the kind."""
JUDGING_ROLES = ("synthesize", "critic", "execute", "commonsense", "script-judge", "alignment")
"""The roles that judge scripts."""


def evaluate(own: KindOptions, job: Job) -> None:
    """Evaluates scripts. Errors are those of ``evaluate_file``.

    Raises:
        ValueError: A judge or a model is malformed.
    """
    overrides = Overrides.parse(own.judge or (), own.judge_model or ())

    def apply(request: EvaluateScriptsRequest) -> None:
        overrides.apply(request)
        if job.sets("gold_answer_source"):
            request.ClearField("gold_answer")  # the row's excludes another source

    evaluate_file(
        job,
        Evaluation(
            request=EvaluateScriptsRequest,
            roles=(*JUDGING_ROLES, AUTHOR.name) if own.model else JUDGING_ROLES,
            apply=apply,
            options=summary_options(own.group_by),
            filled=("candidates",) if own.model else (),
            models=own.model or (),
        ),
    )


def _judge_by(request: EvaluateScriptsRequest, role: str) -> None:
    request.roles.append(role)
    if role == SCRIPT_JUDGE.name:
        request.mechanism = scripts_pb2.MECHANISM_SINGLE_JUDGE


SCRIPT_ROWS = JudgedRows(
    EvaluateScriptsRequest,
    (SYNTHESIZE.name,),
    _judge_by,
)
"""The rows of judges of scripts."""
