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
    title: Annotated[str, typer.Option(help="Title of the page. Default: the folder's name.")] = "",
    samples: Annotated[
        int, typer.Option(min=0, max=10_000, help="Maximum number of samples shown one by one.")
    ] = SAMPLES_SHOWN,
) -> None:
    """Writes results as one self-contained HTML page: leaderboard, heat maps, abstentions, cost, samples.

    "dramaturg runs report" writes the page of a run.

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
