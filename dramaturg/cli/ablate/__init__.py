"""``dramaturg ablate``: the same samples judged in several ways, side by side (ABSEval, section 4.2)."""

from __future__ import annotations

import typer

from dramaturg.cli.ablate.command import ablate

__all__ = ["app"]

app = typer.Typer()
app.command("ablate")(ablate)
