"""Commands of ``research convert``: released formats into rows of an evaluation, one command for each."""

from __future__ import annotations

import typer

from dramaturg_research.convert.choice75 import choice75
from dramaturg_research.convert.coscript import coscript
from dramaturg_research.convert.goyal import goyal
from dramaturg_research.convert.proscript import proscript
from dramaturg_research.convert.simulbench import simulbench

__all__ = ["app"]

app = typer.Typer()
app.command("coscript")(coscript)
app.command("choice75")(choice75)
app.command("simulbench")(simulbench)
app.command("goyal")(goyal)
app.command("proscript")(proscript)
