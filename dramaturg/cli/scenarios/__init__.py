"""``dramaturg scenarios``: writes scenarios and reads their review (Choice-75)."""

from __future__ import annotations

import typer

from dramaturg.cli.scenarios.review import review
from dramaturg.cli.scenarios.sheet import sheet
from dramaturg.cli.scenarios.write import write

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Writes scenarios of decisions and reads their review.")
app.command("write")(write)
app.command("sheet")(sheet)
app.command("review")(review)
