"""The kind ``dialogues`` of ``dramaturg eval``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    EvaluateDialoguesRequest,
    ModelPair,
)
from dramaturg.cli.evaluation import Evaluation, Job, JudgedRows, evaluate_file
from dramaturg.cli.judge_selection import (
    model_files,
    models_of_roles,
    parse_judges,
    set_judges,
    set_shadow_wait,
)
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.options import (
    GroupBy,
    Judges,
    KeepAced,
    ModelsUnderTest,
    ShadowWait,
    UnusableOutputsAbstain,
)
from dramaturg.cli.platform import fail
from dramaturg.cli.summaries import summary_options
from dramaturg.judge.roles import AUTHOR, TEXT_SCORER

EVERY_PAIR = "all"
"""The value for all pairs of a row's models and given replies."""


@dataclass(frozen=True, kw_only=True)
class DialogueOptions:
    """The options of dialogues; absent ones keep the row's value.

    Raises:
        ValueError: A pair is malformed.
    """

    pair: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL,MODEL", help="Two models to compare; repeatable. all: every pair."),
    ] = None
    """The pairs to compare."""
    no_ratings: Annotated[bool, typer.Option("--no-ratings", help="Compare replies without rating them.")] = (
        False
    )
    """Whether replies are not rated."""

    def __post_init__(self) -> None:
        for text in self.pair or ():
            first, _, second = text.partition(",")
            if text != EVERY_PAIR and not (first and second):
                raise ValueError(f"--pair {text!r} is not of the form MODEL,MODEL or {EVERY_PAIR}")

    def apply(self, request: EvaluateDialoguesRequest) -> None:
        """Sets them in a request whose models are set."""
        if pairs := self._pairs(request):
            del request.pairs[:]
            request.pairs.extend(ModelPair(first_model=one, second_model=other) for one, other in pairs)
        if self.no_ratings:
            request.ratings_omitted = True

    def _pairs(self, request: EvaluateDialoguesRequest) -> Sequence[tuple[str, str]]:
        named = self.pair or ()
        if EVERY_PAIR in named:
            who = [*request.models, *(reply.model for reply in request.replies)]
            return list(combinations(who, 2))
        split = (text.partition(",") for text in named)
        return [(first, second) for first, _, second in split]


@takes_groups
def dialogues(
    own: DialogueOptions,
    job: Job,
    model: ModelsUnderTest = None,
    judge: Judges = None,
    judge_model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=MODEL",
            help="The model of a role's judges: a name, or a file in the GGUF format.",
            callback=model_files,
        ),
    ] = None,
    keep_aced: KeepAced = False,
    unusable_outputs_abstain: UnusableOutputsAbstain = False,
    shadow_wait: ShadowWait = 0,
    group_by: GroupBy = None,
) -> None:
    """Evaluates dialogues: replies are rated from 1 to 10 and compared (SimulBench).

    Each row is an EvaluateDialoguesRequest (docs/reference/datasets.md), as "dramaturg research convert
    simulbench" and "research simulate" write them. All rows are checked before the first call.
    DIR/results.jsonl gets one DialogueResult a line and DIR/errors.jsonl the scripts that failed. A refusal
    has the rating 1 and loses; an empty or cut-off reply is judged as it stands. "--judge text-scorer=NAME"
    also scores each reply with a text scorer, e.g. for toxicity. The platform has none of its own.

    Exit codes: 0 all scripts have a result, 1 some failed or nothing was judged, 2 wrong usage or rows,
    4 fewer than 0.9 of the judgements were made, 130 interrupted.

    For example:

        dramaturg eval scripts.jsonl --model gpt-4o --model my-model --pair all

        dramaturg eval scripts.jsonl --model my-model --judge-model rating-judge=gpt-4o

        dramaturg eval scripts.jsonl --model my-model --judge text-scorer=words
    """
    try:
        judges = parse_judges(judge or ())
        judge_models = models_of_roles("--judge-model", judge_model or ())
    except ValueError as error:
        fail(str(error))
    if job.by_reference and EVERY_PAIR in (own.pair or ()) and len(model or ()) < 2:
        fail("--pair all needs two models or more with --by-reference, named with --model")

    def apply(request: EvaluateDialoguesRequest) -> None:
        set_judges(request.judges, judges, judge_models)
        if model:
            request.models[:] = model
        own.apply(request)
        if unusable_outputs_abstain:
            request.unusable_outputs_abstain = True
        if any(role == TEXT_SCORER.name for role, _ in judges):
            request.replies_scored = True
        set_shadow_wait(request, shadow_wait)

    evaluate_file(
        job,
        Evaluation(
            request=EvaluateDialoguesRequest,
            roles=("author", "rating-judge", "pair-judge", TEXT_SCORER.name),
            apply=apply,
            options=summary_options(group_by, aced_kept=keep_aced),
        ),
    )


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
