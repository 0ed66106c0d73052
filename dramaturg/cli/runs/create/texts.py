"""``dramaturg runs create texts``."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.texts_pb2 import EvaluateTextsRequest
from dramaturg.cli.evaluate.texts import Criteria, rubric_of, set_rubric
from dramaturg.cli.runs.create.options import command_of


@command_of("texts")
def texts(criteria: Criteria = None) -> EvaluateTextsRequest:
    """Creates a run that evaluates any texts by a rubric: criteria that pass, fail or have a scale.

    For example:

        dramaturg runs create texts answers.jsonl --criteria rubric.toml --watch

        dramaturg runs create texts s3://bucket/answers.parquet --criteria rubric.toml --max-cost-usd 20
    """
    row = EvaluateTextsRequest()
    set_rubric(row, rubric_of(criteria))
    return row
