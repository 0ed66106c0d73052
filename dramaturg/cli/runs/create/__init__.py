"""``dramaturg runs create``: one command for each kind of evaluation."""

from __future__ import annotations

import typer

from dramaturg.cli.lazy_group import LazyCommand, LazyGroup
from dramaturg.kinds import KINDS, Kind

__all__ = ["app"]


def _member(kind: Kind) -> LazyCommand:
    source = f"{kind.command or f'dramaturg.cli.evaluate.{kind.name}'}:create"
    return LazyCommand(kind.name, source, f"Creates a run that {kind.help[0].lower()}{kind.help[1:]}")


class _Commands(LazyGroup):
    members = tuple(map(_member, KINDS))


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    help="Creates a run. The command returns at once unless --watch is given.",
)
app.callback()(lambda: None)
