"""The kind ``decisions`` of ``dramaturg eval``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1 import decisions_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.cli.evaluation import Evaluation, Job, evaluate_file
from dramaturg.cli.judge_selection import parse_judges, set_judges
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.options import GroupBy, ModelsUnderTest, UnusableOutputsAbstain
from dramaturg.cli.platform import fail
from dramaturg.cli.summaries import summary_options


class PromptName(StrEnum):
    """How a decision is put (``generation.v1.DecisionPrompt``)."""

    NAIVE = "naive"
    STORY = "story"


class OrderName(StrEnum):
    """In which order options are shown (``evaluation.v1.OptionOrder``)."""

    AS_GIVEN = "as-given"
    SWAPPED = "swapped"
    BOTH = "both"


_PROMPTS = {
    PromptName.NAIVE: authoring_decisions_pb2.DECISION_PROMPT_NAIVE,
    PromptName.STORY: authoring_decisions_pb2.DECISION_PROMPT_STORY,
}
_ORDERS = {
    OrderName.AS_GIVEN: decisions_pb2.OPTION_ORDER_AS_GIVEN,
    OrderName.SWAPPED: decisions_pb2.OPTION_ORDER_SWAPPED,
    OrderName.BOTH: decisions_pb2.OPTION_ORDER_BOTH,
}


@dataclass(frozen=True, kw_only=True)
class DecisionOptions:
    """The options of decisions; absent ones keep the row's value."""

    prompt: Annotated[list[PromptName] | None, typer.Option(help="Prompt of the question; repeatable.")] = (
        None
    )
    """How the question is put."""
    order: Annotated[
        OrderName | None, typer.Option(help="Order in which the options are shown. Default: that of the row.")
    ] = None
    """Order in which the options are shown."""

    def apply(self, request: EvaluateDecisionsRequest) -> None:
        """Sets them in a request."""
        if self.prompt:
            request.prompts[:] = [_PROMPTS[prompt] for prompt in self.prompt]
        if self.order is not None:
            request.option_order = _ORDERS[self.order]


@takes_groups
def decisions(
    own: DecisionOptions,
    job: Job,
    model: ModelsUnderTest = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=NAME", help="The service that asks the models: author=NAME."),
    ] = None,
    unusable_outputs_abstain: UnusableOutputsAbstain = False,
    group_by: GroupBy = None,
) -> None:
    """Evaluates decisions: models choose between two options (Choice-75).

    Each row is an EvaluateDecisionsRequest (docs/reference/datasets.md), as "research convert choice75"
    writes them. All rows are checked before the first call. DIR/results.jsonl gets one DecisionResult a
    line and DIR/errors.jsonl the decisions that failed. Accuracy is micro, by the tags "format" and
    "level". A refused, empty or cut-off answer is a wrong choice. Accuracy leaves abstentions out; two more
    columns count all of them as wrong and as right.

    Exit codes: 0 all decisions have a result, 1 some failed or nothing was judged, 2 wrong usage or rows,
    4 fewer than 0.9 of the judgements were made, 130 interrupted.

    For example:

        dramaturg eval dev.jsonl --model gpt-4o --model my-model --prompt naive --prompt story

        dramaturg eval dev.jsonl --model my-model --order both --json
    """
    try:
        judges = tuple(parse_judges(judge or ()))
    except ValueError as error:
        fail(str(error))

    def apply(request: EvaluateDecisionsRequest) -> None:
        own.apply(request)
        set_judges(request.judges, judges, {})
        if model:
            request.models[:] = model
        if unusable_outputs_abstain:
            request.unusable_outputs_abstain = True

    evaluate_file(
        job,
        Evaluation(
            request=EvaluateDecisionsRequest,
            roles=("author", "alignment"),
            apply=apply,
            options=summary_options(group_by),
        ),
    )
