"""``dramaturg evaluate dialogues``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    EvaluateDialoguesRequest,
    EvaluateDialoguesResponse,
    ModelPair,
)
from dramaturg.api.judging.v1.pair_judge_service_pb2 import PREFERENCE_ABSTAIN, PREFERENCE_UNSPECIFIED
from dramaturg.cli.evaluation import Evaluation, Job, JudgedRows, evaluate_file
from dramaturg.cli.judge_selection import parse_judges, parse_models, set_judges, set_shadow_wait
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.options import GroupBy, Judges, KeepAced, ShadowWait, UnusableOutputsAbstain
from dramaturg.cli.platform import fail
from dramaturg.cli.progress import JudgementCount
from dramaturg.cli.summaries import summary_options
from dramaturg.judge.roles import AUTHOR, TEXT_SCORER

EVERY_PAIR = "all"
"""The value for all pairs of a row's models and given replies."""


@dataclass(frozen=True)
class DialogueOverrides:
    """Settings of the command line for every row; absent ones keep the row's value."""

    judges: Sequence[tuple[str, str]] = ()
    """(role, judge) pairs."""
    judge_models: dict[str, str] = field(default_factory=dict)
    """The model of every judge of a role, by role."""
    models: Sequence[str] = ()
    """The models that reply."""
    pairs: Sequence[tuple[str, str]] = ()
    """The pairs to compare."""
    every_pair: bool = False
    """Whether all pairs of models are compared."""
    ratings_omitted: bool = False
    """Whether replies are not rated."""
    unusable_outputs_abstain: bool = False
    """Whether unusable replies of models abstain."""

    @classmethod
    def parse(
        cls,
        judges: Sequence[str],
        judge_models: Sequence[str],
        models: Sequence[str],
        pairs: Sequence[str],
        *,
        ratings_omitted: bool,
        unusable_outputs_abstain: bool = False,
    ) -> DialogueOverrides:
        """Reads them as the command line has them.

        Raises:
            ValueError: One of them is malformed.
        """
        by_role = parse_models("--judge-model", judge_models)
        if "" in by_role:
            raise ValueError(f"--judge-model {by_role['']!r} is not of the form ROLE=MODEL")
        named = []
        for text in pairs:
            first, comma, second = text.partition(",")
            if text != EVERY_PAIR and not (first and comma and second):
                raise ValueError(f"--pair {text!r} is not of the form MODEL,MODEL or {EVERY_PAIR}")
            if text != EVERY_PAIR:
                named.append((first, second))
        return cls(
            parse_judges(judges),
            by_role,
            models,
            named,
            EVERY_PAIR in pairs,
            ratings_omitted,
            unusable_outputs_abstain,
        )

    def apply(self, request: EvaluateDialoguesRequest) -> None:
        """Sets them in a request."""
        set_judges(request.judges, self.judges, self.judge_models)
        if self.models:
            request.models[:] = self.models
        pairs = self.pairs
        if self.every_pair:
            who = [*request.models, *(reply.model for reply in request.replies)]
            pairs = list(combinations(who, 2))
        if pairs:
            del request.pairs[:]
            request.pairs.extend(ModelPair(first_model=one, second_model=other) for one, other in pairs)
        if self.ratings_omitted:
            request.ratings_omitted = True
        if self.unusable_outputs_abstain:
            request.unusable_outputs_abstain = True
        if any(role == TEXT_SCORER.name for role, _ in self.judges):
            request.replies_scored = True


@takes_groups
def dialogues(
    job: Job,
    model: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="A model under test; repeatable.")
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL,MODEL", help="Two models to compare; repeatable. all: every pair."),
    ] = None,
    judge: Judges = None,
    judge_model: Annotated[
        list[str] | None, typer.Option(metavar="ROLE=MODEL", help="The model of a role's judges.")
    ] = None,
    no_ratings: Annotated[
        bool, typer.Option("--no-ratings", help="Compare replies without rating them.")
    ] = False,
    keep_aced: KeepAced = False,
    unusable_outputs_abstain: UnusableOutputsAbstain = False,
    shadow_wait: ShadowWait = 0,
    group_by: GroupBy = None,
) -> None:
    """Evaluates dialogues: replies are rated from 1 to 10 and compared (SimulBench).

    Each row is an EvaluateDialoguesRequest (docs/datasets.md), as "dramaturg convert simulbench" and
    "dramaturg simulate" write them. All rows are checked before the first call. DIR/results.jsonl gets
    one DialogueResult a line and DIR/errors.jsonl the scripts that failed. A refusal has the rating 1 and
    loses; an empty or cut-off reply is judged as it stands. "--judge text-scorer=NAME"
    also scores each reply with a text scorer, e.g. for toxicity. The platform has none of its own.

    Exit codes: 0 all scripts have a result, 1 some failed or nothing was judged, 2 wrong usage or rows,
    4 fewer than 0.9 of the judgements were made, 130 interrupted.

    For example:

        dramaturg evaluate dialogues scripts.jsonl --model gpt-4o --model my-model --pair all

        dramaturg evaluate dialogues scripts.jsonl --model my-model --judge-model rating-judge=gpt-4o

        dramaturg evaluate dialogues scripts.jsonl --model my-model --judge text-scorer=words
    """
    try:
        overrides = DialogueOverrides.parse(
            judge or (),
            judge_model or (),
            model or (),
            pair or (),
            ratings_omitted=no_ratings,
            unusable_outputs_abstain=unusable_outputs_abstain,
        )
    except ValueError as error:
        fail(str(error))

    def apply(request: EvaluateDialoguesRequest) -> None:
        overrides.apply(request)
        set_shadow_wait(request, shadow_wait)

    evaluate_file(
        job,
        Evaluation(
            request=EvaluateDialoguesRequest,
            roles=("author", "rating-judge", "pair-judge", TEXT_SCORER.name),
            evaluate=lambda client, request, seconds: client.evaluate_dialogues(request, timeout=seconds),
            apply=apply,
            noun="judgements",
            judged=replies_judged,
            options=summary_options(group_by, aced_kept=keep_aced),
            judges=overrides.judges,
        ),
    )


_UNDECIDED = (PREFERENCE_UNSPECIFIED, PREFERENCE_ABSTAIN)


def replies_judged(event: EvaluateDialoguesResponse) -> JudgementCount:
    """How many ratings, comparisons and scores an event brings."""
    if event.HasField("rating"):
        return JudgementCount(1, int(not event.rating.rating.HasField("value")))
    if event.HasField("comparison"):
        return JudgementCount(1, int(event.comparison.comparison.preference in _UNDECIDED))
    if event.HasField("score"):
        return JudgementCount(1, int(not event.score.score.HasField("value")))
    return JudgementCount(0, 0)


def _rate_alone(request: EvaluateDialoguesRequest, _: str) -> None:
    del request.pairs[:]
    request.ratings_omitted = False
    request.replies_scored = False


RATED_ROWS = JudgedRows(
    EvaluateDialoguesRequest,
    lambda client, request, seconds: client.evaluate_dialogues(request, timeout=seconds),
    "ratings",
    replies_judged,
    (AUTHOR.name,),
    _rate_alone,
)
"""The rows of judges of replies."""
