"""The group ``dramaturg runs``. Other commands use modules of this package and need no part of the group."""

from __future__ import annotations

import typer

from dramaturg.cli.lazy_group import LazyCommand, LazyGroup
from dramaturg.cli.runs import control, results, watch


class _Commands(LazyGroup):
    members = (
        LazyCommand(
            "datasets",
            "dramaturg.cli.runs.datasets",
            "Uploads datasets to a gateway for runs, lists and deletes them.",
            group=True,
        ),
    )


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    help="Manages the runs of a gateway: evaluations that go on there.\n\n"
    "Exit codes: 0 fine, 1 the run failed or was cancelled, or the gateway did not answer, 2 wrong usage or "
    "refused, 4 the run ended at its budget, 130 interrupted.",
)


@app.callback()
def runs() -> None:
    """Evaluates many samples in a gateway that stays."""


for group in (results, watch, control):
    app.add_typer(group.app)
