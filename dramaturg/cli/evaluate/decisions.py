"""``dramaturg evaluate decisions``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import grpc
import typer

from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.evaluation.v1 import decisions_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest, EvaluateDecisionsResponse
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.cli.evaluate.decision_tables import show_decisions
from dramaturg.cli.evaluation import Evaluation, Job, evaluate_file
from dramaturg.cli.judge_selection import parse_judges, set_judges
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.platform import fail
from dramaturg.cli.progress import JudgementCount
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import from_rpc_error
from dramaturg.summaries.decision_accuracy import Figures, accuracy_request, read_accuracy
from dramaturg.summaries.decisions import DecisionsAggregator


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


@dataclass(frozen=True)
class DecisionOverrides:
    """Settings of the command line for every row; absent ones keep the row's value."""

    judges: tuple[tuple[str, str], ...]
    """(role, judge) pairs."""
    models: tuple[str, ...]
    """The models that decide."""
    prompts: tuple[PromptName, ...]
    """How the question is put."""
    order: OrderName | None
    """Order in which the options are shown."""

    def apply(self, request: EvaluateDecisionsRequest) -> None:
        """Sets them in a request."""
        set_judges(request.judges, self.judges, {})
        if self.models:
            request.models[:] = self.models
        if self.prompts:
            request.prompts[:] = [_PROMPTS[prompt] for prompt in self.prompts]
        if self.order is not None:
            request.option_order = _ORDERS[self.order]


@takes_groups
def decisions(
    job: Job,
    model: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="A model under test; repeatable.")
    ] = None,
    prompt: Annotated[
        list[PromptName] | None, typer.Option(help="Prompt of the question; repeatable.")
    ] = None,
    order: Annotated[
        OrderName | None, typer.Option(help="Order in which the options are shown. Default: that of the row.")
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=NAME", help="The service that asks the models: author=NAME."),
    ] = None,
    macro: Annotated[
        bool, typer.Option("--macro", help="Also report the unweighted mean over the levels.")
    ] = False,
) -> None:
    """Evaluates decisions: models choose between two options (Choice-75).

    Each row is an EvaluateDecisionsRequest (docs/datasets.md), as "dramaturg convert choice75" writes
    them. All rows are checked before the first call. DIR/results.jsonl gets one DecisionResult a line and
    DIR/errors.jsonl the decisions that failed. Accuracy is micro, by the tags "format" and "level". It
    leaves abstentions out; two more columns count all of them as wrong and as right.

    Exit codes: 0 all decisions have a result, 1 some failed or nothing was judged, 2 wrong usage or rows,
    4 fewer than 0.9 of the judgements were made, 130 interrupted.

    For example:

        dramaturg evaluate decisions dev.jsonl --model gpt-4o --model my-model --prompt naive --prompt story

        dramaturg evaluate decisions dev.jsonl --model my-model --order both --json
    """
    try:
        judges = tuple(parse_judges(judge or ()))
    except ValueError as error:
        fail(str(error))
    overrides = DecisionOverrides(judges, tuple(model or ()), tuple(prompt or ()), order)
    aggregator = DecisionsAggregator()
    evaluate_file(
        job,
        Evaluation(
            request=EvaluateDecisionsRequest,
            roles=("author", "alignment"),
            evaluate=lambda client, request, seconds: client.evaluate_decisions(request, timeout=seconds),
            apply=overrides.apply,
            noun="choices",
            judged=choices_judged,
            aggregator=aggregator,
            show=show_decisions,
            judges=judges,
            conclude=lambda address: _measure(aggregator, address, macro=macro),
        ),
    )


async def _measure(aggregator: DecisionsAggregator, address: str, *, macro: bool) -> None:
    """Has the accuracy of each setup measured; where that fails the aggregator says why there is none."""
    found: list[Figures] = []
    async with open_channel(address) as channel:
        alignment = AlignmentServiceStub(channel)
        try:
            for setup, items in aggregator.items.items():
                response = await alignment.MeasureAccuracy(accuracy_request(items, macro=macro))
                found.extend(read_accuracy(setup._asdict(), response, aggregator.unreleased))
        except grpc.aio.AioRpcError as failure:
            error = from_rpc_error(failure)
            aggregator.missing_figures = f"{address} has no alignment service that answers: {error.message}"
            return
    aggregator.figures = found


def choices_judged(event: EvaluateDecisionsResponse) -> JudgementCount:
    """How many choices an event brings."""
    count = int(event.HasField("choice"))
    return JudgementCount(count, count and int(not event.choice.choice))
