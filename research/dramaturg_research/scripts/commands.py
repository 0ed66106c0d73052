"""``research scripts``: reviewed tasks, scripts of the models under test, and labels of people (ABSEval)."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.cli.options import AsJson
from dramaturg.cli.output_files import write_messages
from dramaturg.cli.terminal import echo, tell_next
from dramaturg_research.completed_sheets import reviewed
from dramaturg_research.scripts.annotation import labels, sample
from dramaturg_research.scripts.write import write
from dramaturg_research.tasks.script_task_sheet import read_review

app = typer.Typer(
    no_args_is_help=True,
    help="Reads reviewed tasks, writes scripts with the models under test, and draws scripts to label.",
)


@app.command()
def review(
    file: Annotated[Path, typer.Argument(metavar="SHEET", help="The completed sheet.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="TASKS.jsonl", help="The rows of scripts write to write.")
    ],
    unreviewed: Annotated[
        bool,
        typer.Option(
            "--accept-unreviewed",
            help="Also keep unreviewed tasks whose goal states all their constraints.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Converts accepted and edited tasks into rows of "scripts write".

    Rows without a status are counted as not reviewed. A task that was kept though its goal does not say
    one of its constraints is named on standard error.

    Exit codes: 0 fine, 2 the sheet is invalid.

    For example:

        dramaturg research scripts review out/tasks/review.csv -o tasks.jsonl
    """
    found = reviewed(file, partial(read_review, unreviewed=unreviewed))
    write_messages(out, found.requests)
    for one in found.unworded:
        echo(one, err=True)
    statuses = dict(sorted(found.statuses.items()))
    if as_json:
        summary = {
            "statuses": statuses,
            "rows": len(found.requests),
            "unworded": len(found.unworded),
            "out": str(out),
        }
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        listed = ", ".join(f"{count} {status}" for status, count in statuses.items())
        echo(f"{listed}; {len(found.requests)} tasks to {out}")
    tell_next("research", "scripts", "write", out)


app.command("write")(write)
app.command("sample")(sample)
app.command("labels")(labels)
