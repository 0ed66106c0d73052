"""The kind ``scripts`` of ``dramaturg eval``."""

from __future__ import annotations

from dataclasses import dataclass

from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.cli.evaluation import Evaluation, Job, JudgedRows, evaluate_file
from dramaturg.cli.judge_selection import Overrides, set_shadow_wait
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.options import (
    GoldAnswer,
    GroupBy,
    JudgeModels,
    Judges,
    MaxMissingGoldAnswers,
    Mechanism,
    ModelGroups,
    ModelsUnderTest,
    ShadowWait,
    UnusableOutputsAbstain,
)
from dramaturg.cli.platform import fail
from dramaturg.cli.summaries import summary_options
from dramaturg.judge.roles import AUTHOR, SCRIPT_JUDGE, SYNTHESIZE

JUDGING_ROLES = ("synthesize", "critic", "execute", "commonsense", "script-judge", "alignment")
"""The roles that judge scripts."""


@dataclass(frozen=True, kw_only=True)
class ScriptOptions:
    """The options of scripts; absent ones keep the row's value."""

    mechanism: Mechanism = None
    """The judging mechanism."""
    gold_answer: GoldAnswer = None
    """The source of the gold answer."""

    def apply(self, request: EvaluateScriptsRequest) -> None:
        """Sets them in a request."""
        Overrides.parse((), (), self.mechanism, self.gold_answer).apply(request)


@takes_groups
def scripts(
    own: ScriptOptions,
    job: Job,
    model: ModelsUnderTest = None,
    judge: Judges = None,
    judge_model: JudgeModels = None,
    max_missing_gold_answers: MaxMissingGoldAnswers = None,
    unusable_outputs_abstain: UnusableOutputsAbstain = False,
    shadow_wait: ShadowWait = 0,
    group_by: GroupBy = None,
    model_group: ModelGroups = None,
) -> None:
    """Evaluates scripts (ABSEval): seven verdicts a candidate.

    Each row is an EvaluateScriptsRequest (docs/reference/datasets.md). All rows are checked before the
    first call. DIR/results.jsonl gets one ScriptsResult a line and DIR/errors.jsonl the samples that
    failed, both in the order of the rows. Each --model writes a script for the task of every row, beside
    the candidates that the row brings.

    Exit codes: 0 all samples have a result, 1 some failed or nothing was judged, 2 wrong usage or rows,
    4 fewer than 0.9 of the judgements were made, or more samples than --max-missing-gold-answers permits
    were judged without the gold answer that they asked for, 130 interrupted.

    For example:

        dramaturg eval tasks.jsonl

        dramaturg eval tasks.jsonl --kind scripts --model gpt-4o --model my-model --label team=a

        dramaturg eval tasks.jsonl --judge critic=llm --judge critic=offline --judge-model gpt-4o

        dramaturg eval - --target localhost:50051 --mechanism single-judge --json < tasks.jsonl
    """
    try:
        overrides = Overrides.parse(judge or (), judge_model or (), None, None)
    except ValueError as error:
        fail(str(error))

    def apply(request: EvaluateScriptsRequest) -> None:
        overrides.apply(request)
        own.apply(request)
        if unusable_outputs_abstain:
            request.unusable_outputs_abstain = True
        set_shadow_wait(request, shadow_wait)

    evaluate_file(
        job,
        Evaluation(
            request=EvaluateScriptsRequest,
            roles=(*JUDGING_ROLES, AUTHOR.name) if model else JUDGING_ROLES,
            apply=apply,
            options=summary_options(group_by, model_groups=model_group),
            filled=("candidates",) if model else (),
            models=model or (),
            max_missing_gold_answers=max_missing_gold_answers,
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
