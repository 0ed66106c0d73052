"""``dramaturg convert``: tables and released formats into rows of an evaluation, one command for each."""

from __future__ import annotations

import typer

from dramaturg.cli.convert.choice75 import choice75
from dramaturg.cli.convert.coscript import coscript
from dramaturg.cli.convert.goyal import goyal
from dramaturg.cli.convert.proscript import proscript
from dramaturg.cli.convert.simulbench import simulbench
from dramaturg.cli.convert.texts import texts

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Converts released formats and tables into rows.")
app.command("coscript")(coscript)
app.command("choice75")(choice75)
app.command("simulbench")(simulbench)
app.command("goyal")(goyal)
app.command("proscript")(proscript)
app.command("texts")(texts)
