"""``dramaturg scenarios``: writes scenarios and reads their review (Choice-75)."""

from __future__ import annotations

import typer

from dramaturg.cli.external_commands import NO_RESEARCH, RESEARCH, ExternalCommand
from dramaturg.cli.lazy_group import LazyGroup
from dramaturg.cli.scenarios.sheet import sheet
from dramaturg.cli.scenarios.write import write

__all__ = ["app"]


class _Commands(LazyGroup):
    members = (
        ExternalCommand(
            "review",
            RESEARCH,
            'Converts accepted and edited scenarios into rows of the kind "decisions".',
            NO_RESEARCH,
            entry="scenarios.review",
        ),
    )


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, help="Writes scenarios of decisions and reads their review."
)
app.command("write")(write)
app.command("sheet")(sheet)
