"""``dramaturg runs create decisions``."""

from __future__ import annotations

from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.cli.evaluate.decisions import DecisionOverrides, PromptName
from dramaturg.cli.evaluate.decisions import OrderName as OptionOrderName
from dramaturg.cli.runs.create.options import command_of


@command_of("decisions")
def decisions(
    prompt: Annotated[
        list[PromptName] | None, typer.Option(help="Prompt of the question; repeatable.")
    ] = None,
    order: Annotated[
        OptionOrderName | None, typer.Option(help="Order in which the options are shown.")
    ] = None,
) -> EvaluateDecisionsRequest:
    """Creates a run that evaluates decisions: models choose between two options (Choice-75).

    For example:

        dramaturg runs create decisions dev.csv --model my-model --prompt naive --prompt story
    """
    row = EvaluateDecisionsRequest()
    DecisionOverrides((), (), tuple(prompt or ()), order).apply(row)
    return row
