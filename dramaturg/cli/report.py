"""``dramaturg report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.cli.compare.results import write_comparison
from dramaturg.cli.options import Target
from dramaturg.cli.platform import fail, run
from dramaturg.cli.summaries import summarize_results
from dramaturg.cli.terminal import echo
from dramaturg.datasets.json_lines import LineError
from dramaturg.report.groupings import find_groupings
from dramaturg.report.page import SAMPLES_SHOWN, write_report
from dramaturg.results.files import read_results
from dramaturg.summaries.comparison import RunsError

app = typer.Typer()


@app.command("report")
def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS...",
            help="Folders that evaluate commands wrote, or their results.jsonl; several are compared, the "
            "baseline first.",
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

    Of several results the page shows what got worse and better than in the first, with tests, and what
    changed in the setup. Samples are matched by their ids.

    Exit codes: 0 written, 1 the gateway failed, 2 wrong usage or files that are no results.

    For example:

        dramaturg report out/demo -o report.html

        dramaturg report out/baseline out/candidate -o changes.html
    """
    try:
        if len(results) > 1:
            counts = write_comparison(results, out, title=title, limit=samples, target=target)
        else:
            (path,) = results
            groups = find_groupings(read_results(path))
            summary = run(summarize_results(target, path, groups.options()))
            write_report(path, out, summary, title=title, notes=groups.notes(), limit=samples)
            counts = _counts(summary)
    except (LineError, RunsError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or results}: {error.strerror or error}")
    echo(f"report: {out} ({counts})")


def _counts(summary: Summary) -> str:
    return f"{summary.sample_count} samples, {summary.judgement_count} judgements"
