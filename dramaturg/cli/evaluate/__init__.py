"""``dramaturg evaluate``: one command for each kind of evaluation."""

from __future__ import annotations

import typer

from dramaturg.cli.lazy_group import LazyCommand, LazyGroup
from dramaturg.kinds import KINDS

__all__ = ["app"]


class _Commands(LazyGroup):
    members = tuple(
        LazyCommand(kind.name, f"dramaturg.cli.evaluate.{kind.name}:{kind.name}", kind.help)
        for kind in KINDS
        if not kind.command
    )


app = typer.Typer(cls=_Commands, no_args_is_help=True, help="Evaluates what language models wrote.")
app.callback()(lambda: None)
