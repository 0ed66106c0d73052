"""``dramaturg show``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from dramaturg.cli.found_results import HELP, find_results
from dramaturg.cli.options import AsJson, GroupBy, KeepAced, ModelGroups, ResultsTarget
from dramaturg.cli.platform import fail, output
from dramaturg.cli.summaries import as_json, print_failures, show_summary, summary_options
from dramaturg.cli.terminal import tell_next
from dramaturg.results.files import read_results

app = typer.Typer()


@app.command("show")
def show(
    results: Annotated[str, typer.Argument(metavar="RESULTS", help=f"{HELP}.")],
    group_by: GroupBy = None,
    model_group: ModelGroups = None,
    keep_aced: KeepAced = False,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of resampled intervals.")] = 0,
    target: ResultsTarget = None,
    as_json_object: AsJson = False,
) -> None:
    """Prints the tables of results, also by other groups.

    The figures are those of "dramaturg eval" and of the report. A run may still go on. A folder and a run
    also have the samples that failed; an exported run has only those with a result.

    Exit codes: 0 printed, 1 the gateway failed, 2 wrong usage, or there are no results.

    For example:

        dramaturg show out/demo --group-by topic --group-by topic,steps

        dramaturg show RUN --target localhost:50051

        dramaturg show exported.jsonl --json
    """
    found = find_results(results, target)
    options = summary_options(group_by, aced_kept=keep_aced, seed=seed, model_groups=model_group)
    summary = found.summary(options)
    if not summary.sample_count:
        fail(f"{results}: there are no results")
    if as_json_object:
        described = {**as_json(summary), "results": found.name}
        typer.echo(json.dumps(described, ensure_ascii=False))
        return
    console = output()
    show_summary(console, summary)
    if summary.failed_sample_count:
        failed = f"{summary.failed_sample_count} of {summary.sample_count} samples failed"
        console.print(failed, style="red")
    with found.files() as path:
        print_failures(console, read_results(path))
    if found.warning:
        console.print(found.warning, style="yellow")
    tell_next("report", *found.arguments)
