"""``dramaturg research tasks``: tasks written by models, and their review by people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.cli.options import AsJson
from dramaturg.cli.output_files import write_messages
from dramaturg.cli.terminal import echo, tell_next
from dramaturg_research.completed_sheets import reviewed
from dramaturg_research.tasks.expand import expand
from dramaturg_research.tasks.simulation_tasks import read_review
from dramaturg_research.tasks.write import write

app = typer.Typer(no_args_is_help=True, help="Writes tasks: simulations, and tasks for scripts.")
app.command("expand")(expand)


@app.command()
def review(
    file: Annotated[Path, typer.Argument(metavar="SHEET", help="The completed sheet.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="TASKS.jsonl", help="The rows of simulate to write.")
    ],
    as_json: AsJson = False,
) -> None:
    """Converts accepted and edited simulation tasks into rows of "simulate".

    SHEET is what "tasks write --sheet" wrote, as CSV or JSON Lines. Rows without a status are counted as
    not reviewed.

    Exit codes: 0 fine, 2 the sheet is invalid.

    For example:

        dramaturg research tasks review out/tasks/review.csv -o tasks.jsonl
    """
    found = reviewed(file, read_review)
    write_messages(out, found.requests)
    statuses = dict(sorted(found.statuses.items()))
    if as_json:
        summary = {"statuses": statuses, "rows": len(found.requests), "out": str(out)}
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        listed = ", ".join(f"{count} {status}" for status, count in statuses.items())
        echo(f"{listed}; {len(found.requests)} tasks to {out}")
    tell_next("research", "simulate", out)


app.command("write")(write)
