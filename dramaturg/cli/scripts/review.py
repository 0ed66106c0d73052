"""``dramaturg scripts review``."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.authoring.script_task_sheet import read_review
from dramaturg.cli.options import AsJson
from dramaturg.cli.output_files import write_messages
from dramaturg.cli.sheet_review import reviewed
from dramaturg.cli.terminal import echo


def review(
    file: Annotated[Path, typer.Argument(metavar="SHEET", help="The sheet that people filled in.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="TASKS.jsonl", help="The rows of scripts write to write.")
    ],
    unreviewed: Annotated[
        bool,
        typer.Option(
            "--accept-unreviewed",
            help="Keep tasks without a status too, where all their constraints stand in their goal.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Makes rows of "scripts write" of the tasks that people accepted or edited.

    Rows whose status is empty are counted as not reviewed. A task that was kept though its goal does not say
    one of its constraints is named on standard error.

    Exit codes: 0 fine, 2 the sheet is not in order.

    For example:

        dramaturg scripts review out/tasks/review.csv -o tasks.jsonl
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
