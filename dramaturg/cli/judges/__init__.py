"""``dramaturg judges``: the judges of a gateway."""

from __future__ import annotations

import typer

from dramaturg.cli.judges import comparison, panel, registration
from dramaturg.cli.lazy_group import LazyCommand, LazyGroup


class _Commands(LazyGroup):
    members = (
        LazyCommand(
            "check",
            "dramaturg.cli.judges.certify",
            "Checks a server against its contract. Exit code 1: a requirement is broken.",
        ),
        LazyCommand(
            "certify",
            "dramaturg.cli.judges.certify",
            "Tests a judge's errors and biases within tolerances. Exit code 1: a property is outside.",
        ),
    )


app = typer.Typer(cls=_Commands, invoke_without_command=True)
app.callback()(registration.judges)
app.add_typer(registration.app)
app.add_typer(comparison.app)
app.add_typer(panel.weights_app)
app.add_typer(panel.app, name="panel", help="Registers panels of judges at a running gateway.")
