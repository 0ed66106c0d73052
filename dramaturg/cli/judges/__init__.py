"""``dramaturg judges``: the judges of a gateway."""

from __future__ import annotations

import typer

from dramaturg.cli.judges import listing, registration

app = typer.Typer(invoke_without_command=True)
app.callback()(listing.judges)
app.add_typer(registration.app)
