"""``dramaturg show``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.cli.options import AsJson, GroupBy, KeepAced, ModelGroups, Target
from dramaturg.cli.platform import fail, output, run
from dramaturg.cli.summaries import as_json, print_failures, show_summary, summarize_results, summary_options
from dramaturg.cli.terminal import tell_next
from dramaturg.results.files import read_results

app = typer.Typer()


@app.command("show")
def show(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS",
            exists=True,
            help="A folder of eval, its results.jsonl, or a run exported as samples-jsonl.",
        ),
    ],
    group_by: GroupBy = None,
    model_group: ModelGroups = None,
    keep_aced: KeepAced = False,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of resampled intervals.")] = 0,
    target: Target = None,
    as_json_object: AsJson = False,
) -> None:
    """Prints the tables of results again, also by other groups.

    The figures are those of "dramaturg eval", of "dramaturg runs summary" and of the report. A folder
    also has the samples that failed (errors.jsonl); an exported run has only those with a result.

    Exit codes: 0 printed, 1 the gateway failed, 2 wrong usage or a file that has no results.

    For example:

        dramaturg show out/demo --group-by topic --group-by topic,steps

        dramaturg show exported.jsonl --json
    """
    summary = run(
        summarize_results(
            target,
            results,
            summary_options(group_by, aced_kept=keep_aced, seed=seed, model_groups=model_group),
        )
    )
    if not summary.sample_count:
        fail(f"{results}: there are no results")
    if as_json_object:
        typer.echo(json.dumps({**as_json(summary), "results": str(results)}, ensure_ascii=False))
        return
    console = output()
    show_summary(console, summary)
    if summary.failed_sample_count:
        failed = f"{summary.failed_sample_count} of {summary.sample_count} samples failed"
        console.print(failed, style="red")
    print_failures(console, read_results(results))
    tell_next("report", results)
