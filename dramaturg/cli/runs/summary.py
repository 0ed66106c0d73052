"""``dramaturg runs summary``."""

from __future__ import annotations

import json

import typer

from dramaturg.cli.options import AsJson, GroupBy, KeepAced, ModelGroups
from dramaturg.cli.platform import output
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunId, RunTarget, ask
from dramaturg.cli.summaries import as_json, show_summary, summary_options
from dramaturg.cli.terminal import tell_next

app = typer.Typer()


@app.command("summary")
def summary(
    run_id: RunId,
    group_by: GroupBy = None,
    model_group: ModelGroups = None,
    keep_aced: KeepAced = False,
    target: RunTarget = DEFAULT_TARGET,
    as_json_object: AsJson = False,
) -> None:
    """Prints the tables of a run, also while it goes on: those of "dramaturg eval".

    For example:

        dramaturg runs summary RUN --group-by level --group-by format,level
    """
    options = summary_options(group_by, aced_kept=keep_aced, model_groups=model_group)
    response = ask(target, lambda runs: runs.summary(run_id, options))
    if as_json_object:
        typer.echo(json.dumps({**as_json(response.summary), "final": response.final}, ensure_ascii=False))
        return
    console = output()
    show_summary(console, response.summary)
    if not response.final:
        console.print("the run has not ended: these figures will change", style="yellow")
    tell_next("runs", "report", run_id, "--out", "report.html", "--target", target)
