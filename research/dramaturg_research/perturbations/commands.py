"""``research perturb``: scripts with one known fault, and how many judges detect (ABSEval, Table 4)."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from dramaturg_research.perturbations.report import report
from dramaturg_research.perturbations.write import write

__all__ = ["app"]


class _WritesByDefault(TyperGroup):
    """Takes ``perturb FILE`` for ``research perturb write FILE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["write", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_WritesByDefault,
    no_args_is_help=True,
    help="Inserts known faults into scripts and reports which of them judges detect. "
    '"perturb FILE" is short for "perturb write FILE".',
)
app.command("write")(write)
app.command("report")(report)
