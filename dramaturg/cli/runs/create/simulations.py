"""``dramaturg runs create simulations``."""

from __future__ import annotations

from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.dialogues_pb2 import SimulateDialogueRequest
from dramaturg.cli.runs.create.options import command_of


@command_of("simulations")
def simulations(
    simulator: Annotated[str, typer.Option(metavar="MODEL", help="The model that simulates.")] = "",
    user: Annotated[str, typer.Option(metavar="MODEL", help="The model that plays the user.")] = "",
    turns: Annotated[
        int | None,
        typer.Option(min=1, max=50, help="Maximum number of turns. Default: that of the row, else 4."),
    ] = None,
) -> SimulateDialogueRequest:
    """Creates a run that simulates dialogues and cuts test scripts from them (SimulBench).

    A row is one dialogue; several dialogues of a task are rows with different dialogue_index.

    For example:

        dramaturg runs create simulations tasks.jsonl --simulator my-model --user my-model
    """
    return SimulateDialogueRequest(simulator_model=simulator, user_model=user, max_turn_count=turns or 0)
