"""``dramaturg plot``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.json_format import ParseDict, ParseError

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.cli.options import Target
from dramaturg.cli.platform import fail, run
from dramaturg.cli.summaries import summarize_results
from dramaturg.cli.terminal import echo
from dramaturg.datasets.json_lines import LineError
from dramaturg.plots.figures import NO_PLOTS, can_draw
from dramaturg.plots.files import write_plots
from dramaturg.report.groupings import find_groupings
from dramaturg.results.files import read_results

app = typer.Typer()


@app.command("plot")
def plot(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SUMMARY|RESULTS",
            exists=True,
            help='A summary as JSON (".json"), a folder of an evaluate command, or its results.jsonl.',
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder of the files.")],
    target: Target = None,
) -> None:
    """Writes the tables and charts of results for papers and slides.

    Each table of the report is written as Markdown, CSV and LaTeX (booktabs), its heat map and its intervals
    as SVG, PNG and PDF. Charts need matplotlib: pip install 'dramaturg[plots]'. A summary is what an evaluate
    command, "dramaturg summarize" and "dramaturg runs summary" print with --json.

    Exit codes: 0 written, 1 the gateway failed, 2 wrong usage or a file that has no results.

    For example:

        dramaturg plot out/demo -o out/plots
    """
    try:
        summary = _read(source, target)
        if not summary.sample_count:
            fail(f"{source}: there are no results")
        written = write_plots(summary, out, draw=can_draw())
    except LineError as error:
        fail(str(error))
    except (ParseError, ValueError) as error:
        fail(f"{source}: is no summary: {error}")
    except OSError as error:
        fail(f"{error.filename or source}: {error.strerror or error}")
    if not can_draw():
        echo(NO_PLOTS)
    echo(f"{len(written)} files: {out}")


def _read(source: Path, target: str | None) -> Summary:
    if source.suffix == ".json":
        return ParseDict(
            json.loads(source.read_text(encoding="utf-8")), Summary(), ignore_unknown_fields=True
        )
    groups = find_groupings(read_results(source))
    return run(summarize_results(target, source, groups.options()))
