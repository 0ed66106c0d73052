"""``dramaturg report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo
from dramaturg.datasets.json_lines import LineError
from dramaturg.report.page import SAMPLES_SHOWN, write_report

app = typer.Typer()


@app.command("report")
def report(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS", help="A folder that an evaluate command wrote, or its results.jsonl."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="The page.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="What stands above. Default: the folder's name.")] = "",
    samples: Annotated[
        int, typer.Option(min=0, max=10_000, help="The most samples shown one by one.")
    ] = SAMPLES_SHOWN,
) -> None:
    """Makes one self-contained HTML page of results: leaderboard, heat maps, abstentions, cost, every sample.

    Nothing on the page is loaded from elsewhere, so it can be mailed and kept. The page of a run that a
    gateway keeps is made by "dramaturg runs report".

    Exit codes: 0 written, 2 wrong usage or files that are no results.

    For example:

        dramaturg report out/demo -o report.html
    """
    try:
        aggregates = write_report(results, out, title=title, limit=samples)
    except LineError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or results}: {error.strerror or error}")
    echo(f"report: {out} ({aggregates.samples} samples, {aggregates.judgements} judgements)")
