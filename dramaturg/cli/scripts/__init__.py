"""``dramaturg scripts``: from tasks that people reviewed to scripts of every model under test (ABSEval)."""

from __future__ import annotations

import typer

from dramaturg.cli.scripts.review import review
from dramaturg.cli.scripts.write import write

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="Reads reviewed tasks and writes scripts for tasks with the models under test."
)
app.command("review")(review)
app.command("write")(write)
