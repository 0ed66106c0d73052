"""``dramaturg report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.cli.options import Target
from dramaturg.cli.platform import fail, run
from dramaturg.cli.summaries import summarize_results
from dramaturg.cli.terminal import echo
from dramaturg.datasets.json_lines import LineError
from dramaturg.report.groupings import find_groupings
from dramaturg.report.page import SAMPLES_SHOWN, write_report
from dramaturg.results.files import read_results

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
        int, typer.Option(min=0, max=100_000, help="Maximum number of samples shown one by one.")
    ] = SAMPLES_SHOWN,
    target: Target = None,
) -> None:
    """Writes results as one HTML page that opens anywhere, also offline.

    The page has the figures of "dramaturg summarize" as tables and charts, by each tag with a few values, and
    the samples behind them: filters, search, links to a sample or to a filter. "dramaturg runs report" writes
    the page of a run.

    Exit codes: 0 written, 1 the gateway failed, 2 wrong usage or files that are no results.

    For example:

        dramaturg report out/demo -o report.html
    """
    try:
        groups = find_groupings(read_results(results))
        summary = run(summarize_results(target, results, groups.options()))
        write_report(results, out, summary, title=title, notes=groups.notes(), limit=samples)
    except LineError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or results}: {error.strerror or error}")
    echo(f"report: {out} ({_counts(summary)})")


def _counts(summary: Summary) -> str:
    return f"{summary.sample_count} samples, {summary.judgement_count} judgements"
