"""``dramaturg runs create dialogues``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.dialogues_pb2 import EvaluateDialoguesRequest
from dramaturg.cli.evaluate.dialogues import DialogueOverrides
from dramaturg.cli.options import ModelsUnderTest
from dramaturg.cli.runs.create.options import command_of


@command_of("dialogues")
def dialogues(
    model: ModelsUnderTest = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL,MODEL", help="Two models to compare; repeatable. all: every pair of --model."
        ),
    ] = None,
    no_ratings: Annotated[
        bool, typer.Option("--no-ratings", help="Compare replies without rating them.")
    ] = False,
) -> EvaluateDialoguesRequest:
    """Creates a run that evaluates dialogues: replies are rated from 1 to 10 and compared (SimulBench).

    For example:

        dramaturg runs create dialogues scripts.jsonl --model gpt-4o --model my-model --pair all
    """
    row = EvaluateDialoguesRequest()
    under_test: Sequence[str] = model or ()
    DialogueOverrides.parse((), (), under_test, pair or (), ratings_omitted=no_ratings).apply(row)
    if pair and not row.pairs:
        raise ValueError("--pair all needs two models or more, named with --model")
    return row
