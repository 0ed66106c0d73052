"""``dramaturg report``: results as a page, or compared with a baseline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.json_format import ParseDict, ParseError

from dramaturg.api.alignment.v1 import accuracy_pb2, compare_pb2
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.align.options import call_alignment
from dramaturg.cli.options import ResultsTarget
from dramaturg.cli.platform import fail, run
from dramaturg.cli.show import HELP, find_results
from dramaturg.cli.summaries import summarize_results
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.json_lines import LineError
from dramaturg.report.comparison import render_comparison
from dramaturg.report.groupings import find_groupings
from dramaturg.report.page import SAMPLES_SHOWN, write_report
from dramaturg.results.files import read_results
from dramaturg.results.kind import Judgement
from dramaturg.summaries.comparison import (
    CRITERION,
    SAMPLE,
    RunsError,
    comparison,
    outcome_flips,
    read_run,
)
from dramaturg.tables.comparison import BETTER, CHANGED, WORSE, Comparison, Flip

_PERMUTATIONS = 9999
_PAGES = frozenset({".html", ".htm"})
"""The suffixes of pages. A page replaces a file, which must not be a table or results."""


def write_comparison(
    results: Sequence[Path], out: Path, *, title: str, limit: int, target: str | None
) -> str:
    """Writes the page that compares results with the first.

    Args:
        results: The results, the baseline first.
        out: The page.
        title: Its title. Empty: the names of the results.
        limit: The maximum number of samples shown one by one.
        target: The address of the gateway. None: services are started for the command.

    Returns:
        The counts of changes, as text.

    Raises:
        RunsError: The results cannot be compared.
        LineError: A line is not a result.
        OSError: A file cannot be read or written.
    """
    names = _names(results)
    runs = [read_run(path, name, by_sample=False) for path, name in zip(results, names, strict=True)]
    request, left_out = comparison(runs, None)
    request.MergeFrom(
        compare_pb2.CompareRunsRequest(
            group_tag=CRITERION,
            cluster_tag=SAMPLE,
            permutation_count=_PERMUTATIONS,
            abstention_policy=accuracy_pb2.ABSTENTION_POLICY_EXCLUDED,
        )
    )
    response = call_alignment(target, lambda stub: stub.CompareRuns(request))
    flips = [
        Flip(flipped.name, *key, before.outcome(), after.outcome(), _direction(before, after), after.model)
        for flipped, key, before, after in outcome_flips(runs)
    ]
    made = Comparison(
        runs=names,
        summaries=_summaries(results, names, target),
        response=response,
        flips=flips,
        value=runs[0].comparability.value,
        shares=runs[0].comparability.shares,
        left_out=left_out,
    )
    samples = {name: read_results(path) for path, name in zip(results, names, strict=True)}
    with out.open("w", encoding="utf-8", errors="replace") as file:
        for piece in render_comparison(title or " and ".join(names), made, samples, limit):
            file.write(piece)
    return f"{len(flips)} judgements differ"


def _names(results: Sequence[Path]) -> Sequence[str]:
    names = [path.resolve().name if path.is_dir() else path.resolve().parent.name for path in results]
    if len(set(names)) < len(names):
        names = [str(path) for path in results]
    if len(set(names)) < len(names):
        raise RunsError("a result is named twice")
    return names


def _summaries(results: Sequence[Path], names: Sequence[str], target: str | None) -> dict[str, Summary]:
    return {
        name: run(summarize_results(target, path, SummaryOptions(), mapped=False))
        for path, name in zip(results, names, strict=True)
    }


def _direction(before: Judgement, after: Judgement) -> str:
    if before.value is None or after.value is None:
        return CHANGED
    return BETTER if after.value > before.value else WORSE


app = typer.Typer()


@app.command("report")
def report(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULTS...",
            help=f"{HELP}; several are compared, the baseline first. With --plots also a summary as JSON.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="The page.")] = Path(
        "report.html"
    ),
    title: Annotated[
        str, typer.Option(help="Title of the page. Default: the name of the folder or of the run.")
    ] = "",
    samples: Annotated[
        int, typer.Option(min=0, max=100_000, help="Maximum number of samples shown one by one.")
    ] = SAMPLES_SHOWN,
    plots: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the tables and charts into this folder too, for papers."),
    ] = None,
    target: ResultsTarget = None,
) -> None:
    """Writes results as one HTML page that opens anywhere, also offline.

    The page has the figures of "dramaturg show" as tables and charts, by each tag with a few values, and
    the samples behind them: filters, search, links to a sample or to a filter.

    Of several results the page shows what got worse and better than in the first, with tests, and what
    changed in the setup. Samples are matched by their ids.

    --plots writes each table as Markdown, CSV and LaTeX (booktabs), its heat map and intervals as SVG, PNG
    and PDF. Charts need matplotlib: pip install 'dramaturg[plots]'. A summary that "dramaturg show" prints
    with --json has no samples: of it there are plots and no page.

    Exit codes: 0 written, 1 the gateway failed, 2 wrong usage or files that are no results.

    For example:

        dramaturg report out/demo -o report.html

        dramaturg report RUN --target localhost:50051

        dramaturg report out/baseline out/candidate -o changes.html

        dramaturg report out/demo --plots out/plots
    """
    if out.suffix.lower() not in _PAGES:
        fail(f"--out {out}: is not the name of a page; it ends in .html")
    if plots is not None and len(results) > 1:
        fail("--plots is for one folder of results")
    try:
        if plots is not None and results[0].endswith(".json"):
            _plot(_parse(Path(results[0])), plots, results[0])
            return
        found = [find_results(one, target) for one in results]
        with ExitStack() as stack:
            paths = [stack.enter_context(one.files()) for one in found]
            if len(paths) > 1:
                counts = write_comparison(paths, out, title=title, limit=samples, target=target)
            else:
                groups = find_groupings(read_results(paths[0]))
                summary = found[0].summary(groups.options())
                title, warning = title or found[0].title, found[0].warning
                write_report(paths[0], out, summary, title=title, warning=warning, limit=samples)
                counts = _counts(summary)
                if plots is not None:
                    _plot(summary, plots, results[0])
    except (LineError, RunsError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or results}: {error.strerror or error}")
    echo(f"report: {out} ({counts})")
    tell_next(*("compare", *results) if len(results) > 1 else ("show", *found[0].arguments))


def _parse(source: Path) -> Summary:
    try:
        return ParseDict(
            json.loads(source.read_text(encoding="utf-8")), Summary(), ignore_unknown_fields=True
        )
    except (ParseError, ValueError) as error:
        fail(f"{source}: is no summary: {error}")


def _plot(summary: Summary, folder: Path, source: str) -> None:
    from dramaturg.plots.figures import NO_PLOTS, can_draw, write_plots

    if not summary.sample_count:
        fail(f"{source}: there are no results")
    drawn = can_draw()
    written = write_plots(summary, folder, draw=drawn)
    if not drawn:
        echo(NO_PLOTS)
    echo(f"{len(written)} files: {folder}")


def _counts(summary: Summary) -> str:
    return f"{summary.sample_count} samples, {summary.judgement_count} judgements"
