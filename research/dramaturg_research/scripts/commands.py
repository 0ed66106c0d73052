"""``research scripts``: reviewed tasks, scripts of the models under test, and labels of people (ABSEval)."""

from __future__ import annotations

import typer

from dramaturg_research.scripts.annotation import labels, sample
from dramaturg_research.scripts.review import review
from dramaturg_research.scripts.write import write

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Reads reviewed tasks, writes scripts with the models under test, and draws scripts to label.",
)
app.command("review")(review)
app.command("write")(write)
app.command("sample")(sample)
app.command("labels")(labels)
