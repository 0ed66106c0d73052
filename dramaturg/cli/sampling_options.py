"""The options of sampling, the same for every command whose models are called."""

from __future__ import annotations

from typing import Annotated

import typer

from dramaturg.cli.lazy_group import MORE

MaxOutputTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1_000_000,
        help="The most tokens of an answer, reasoning included.",
        rich_help_panel=MORE,
    ),
]
ReasoningEffort = Annotated[
    str,
    typer.Option(metavar="EFFORT", help="How much a reasoning model reasons: minimal, low, medium, high."),
]
Repeats = Annotated[
    int,
    typer.Option(
        min=0,
        max=15,
        help="Ask each judge of verdicts, ratings or pairs as often, independently; the majority or the mean "
        "counts. 0: as the row says, else once.",
        rich_help_panel=MORE,
    ),
]
