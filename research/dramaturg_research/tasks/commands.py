"""``dramaturg research tasks``: tasks written by models, and their review by people."""

from __future__ import annotations

import typer

from dramaturg_research.tasks.expand import expand
from dramaturg_research.tasks.review import review
from dramaturg_research.tasks.write import write

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Writes tasks: simulations, and tasks for scripts.")
app.command("expand")(expand)
app.command("review")(review)
app.command("write")(write)
