"""Options of the commands that compare texts, each written once."""

from __future__ import annotations

from typing import Annotated

import typer

from dramaturg.cli.pairs.variants import BaselineName, OrderName
from dramaturg.judge.role_sets import NAMES

Order = Annotated[
    OrderName | None,
    typer.Option(help="In which order texts are shown. Default: as the row says, else both."),
]
Baselines = Annotated[
    list[BaselineName] | None,
    typer.Option(help="What else compares, in calls of its own; may stand several times."),
]
RoleSet = Annotated[
    str,
    typer.Option(metavar="SET", help=f"The objective roles: {', '.join(NAMES)}. Default: as the row says."),
]
