"""The kind ``dialogues`` of ``dramaturg eval``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from dramaturg.api.evaluation.v1.dialogues_pb2 import EvaluateDialoguesRequest, ModelPair
from dramaturg.cli.evaluation import Evaluation, Job, JudgedRows, evaluate_file
from dramaturg.cli.judge_selection import models_of_roles, parse_judges, set_judges
from dramaturg.cli.kind_options import KindOptions
from dramaturg.cli.summaries import summary_options
from dramaturg.judge.roles import AUTHOR, TEXT_SCORER

USED = ("model", "judge", "judge_model", "pair", "group_by")
"""The options of the kind."""
EVERY_PAIR = "all"
"""The value for all pairs of a row's models and given replies."""


def evaluate(own: KindOptions, job: Job) -> None:
    """Evaluates dialogues. Errors are those of ``evaluate_file``.

    Raises:
        ValueError: A judge, a model or a pair is malformed.
    """
    judges = parse_judges(own.judge or ())
    judge_models = models_of_roles("--judge-model", own.judge_model or ())
    pairs = _parse_pairs(own.pair or ())
    if job.by_reference and own.pair and pairs is None and len(own.model or ()) < 2:
        raise ValueError("--pair all needs two models or more with --by-reference, named with --model")

    def apply(request: EvaluateDialoguesRequest) -> None:
        set_judges(request.judges, judges, judge_models)
        if own.model:
            request.models[:] = own.model
        if own.pair:
            compared = _every_pair(request) if pairs is None else pairs
            if compared:
                del request.pairs[:]
                request.pairs.extend(ModelPair(first_model=one, second_model=two) for one, two in compared)
        if any(role == TEXT_SCORER.name for role, _ in judges):
            request.replies_scored = True

    evaluate_file(
        job,
        Evaluation(
            request=EvaluateDialoguesRequest,
            roles=("author", "rating-judge", "pair-judge", TEXT_SCORER.name),
            apply=apply,
            options=summary_options(own.group_by),
        ),
    )


def _parse_pairs(texts: Sequence[str]) -> Sequence[tuple[str, str]] | None:
    """Reads MODEL,MODEL. None: every pair of a row."""
    if EVERY_PAIR in texts:
        return None
    pairs = []
    for text in texts:
        first, _, second = text.partition(",")
        if not (first and second):
            raise ValueError(f"--pair {text!r} is not of the form MODEL,MODEL or {EVERY_PAIR}")
        pairs.append((first, second))
    return pairs


def _every_pair(request: EvaluateDialoguesRequest) -> Sequence[tuple[str, str]]:
    return list(combinations([*request.models, *(reply.model for reply in request.replies)], 2))


def _rate_alone(request: EvaluateDialoguesRequest, _: str) -> None:
    del request.pairs[:]
    request.ratings_omitted = False
    request.replies_scored = False


RATED_ROWS = JudgedRows(
    EvaluateDialoguesRequest,
    (AUTHOR.name,),
    _rate_alone,
)
"""The rows of judges of replies."""
