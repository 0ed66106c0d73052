"""``dramaturg evaluate``: one command for each evaluation."""

from __future__ import annotations

import typer

from dramaturg.cli.evaluate.decisions import decisions
from dramaturg.cli.evaluate.dialogues import dialogues
from dramaturg.cli.evaluate.graphs import graphs
from dramaturg.cli.evaluate.pairs import pairs
from dramaturg.cli.evaluate.scripts import scripts

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Evaluates what language models wrote.")
app.command("scripts")(scripts)
app.command("decisions")(decisions)
app.command("dialogues")(dialogues)
app.command("pairs")(pairs)
app.command("graphs")(graphs)
