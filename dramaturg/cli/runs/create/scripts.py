"""``dramaturg runs create scripts``."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.cli.judge_selection import Overrides
from dramaturg.cli.options import GoldAnswer, MaxMissingGoldAnswers, Mechanism
from dramaturg.cli.runs.create.options import command_of


@command_of("scripts", max_missing_gold_answer_fraction=MaxMissingGoldAnswers)
def scripts(
    mechanism: Mechanism = None,
    gold_answer: GoldAnswer = None,
) -> EvaluateScriptsRequest:
    """Creates a run that evaluates scripts (ABSEval): seven verdicts a candidate.

    Each --model writes a script for the task of every row, beside the candidates that the row brings.

    For example:

        dramaturg runs create scripts tasks.jsonl --model gpt-4o --model my-model --watch

        dramaturg runs create scripts s3://bucket/tasks.parquet --judge critic=llm --max-cost-usd 20
    """
    row = EvaluateScriptsRequest()
    Overrides.parse((), (), mechanism, gold_answer).apply(row)
    return row
