"""``dramaturg runs watch``: shows a run until it has ended."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Run
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import INTERRUPTED, PARTIAL, output
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunId, RunTarget, ask
from dramaturg.cli.runs.progress import RunDisplay
from dramaturg.cli.runs.run_text import describe
from dramaturg.cli.terminal import Terminal, echo, printable, tell_next
from dramaturg.client import ServiceError
from dramaturg.results.run_text import describe_progress, state_name
from dramaturg.run_client import RunClient

EXIT_CODES = {
    run_pb2.RUN_STATE_SUCCEEDED: 0,
    run_pb2.RUN_STATE_FAILED: 1,
    run_pb2.RUN_STATE_CANCELLED: 1,
    run_pb2.RUN_STATE_PARTIAL: PARTIAL,
    run_pb2.RUN_STATE_PAUSED: 1,
}
"""The exit codes of a command that waits for the end of a run, or for a pause by the engine."""

_PAUSED_BY_ENGINE = frozenset({run_pb2.RUN_OUTCOME_HALTED, run_pb2.RUN_OUTCOME_JUDGE_CHANGED})

Watch = Annotated[bool, typer.Option("--watch", help="Show the progress until the run ends.")]

app = typer.Typer()


@app.command("watch")
def watch(run_id: RunId, target: RunTarget = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """Shows the progress of a run until it ends, and the error while every attempt fails.

    A run whose first samples fail for one permanent reason is paused; the command then ends with the reason.
    The command reconnects after a lost connection. Ctrl-C ends the command, not the run. With --json the
    run is printed at the end.

    Exit codes: 0 the run succeeded, 1 it failed, was cancelled or was paused for failures, 4 it is partial
    (it ended at its budget, or its coverage is too low), 130 interrupted.

    For example:

        dramaturg runs watch RUN
    """
    follow(target, run_id, as_json=as_json)


def follow(target: str, run_id: str, *, as_json: bool) -> NoReturn:
    """Shows a run until it has ended, or the engine has paused it.

    Raises:
        typer.Exit: With the code of the run's end.
    """
    try:
        ended = ask(target, lambda runs: watch_run(runs, run_id))
    except typer.Exit as stopped:
        if stopped.exit_code == INTERRUPTED:
            echo(
                "detached; the run goes on. To see it again: "
                f"dramaturg runs watch {run_id} --target {target}",
                err=True,
            )
        raise
    if as_json:
        typer.echo(json.dumps(describe(ended), ensure_ascii=False))
    else:
        reason = f": {printable(ended.state_reason)}" if ended.state_reason else ""
        console = output()
        console.print(Text.assemble((state_name(ended.state), "bold"), reason), soft_wrap=True)
        console.print(describe_progress(ended.progress, ended.state), soft_wrap=True)
    if ended.progress.succeeded_count:
        tell_next("show", run_id, "--target", target)
    raise typer.Exit(EXIT_CODES.get(ended.state, 1))


async def watch_run(runs: RunClient, run_id: str) -> Run:
    """Shows a run until it has ended, or the engine has paused it, and returns it."""
    # Asked for first, so that a wrong address or id is told at once.
    run = await runs.get(run_id)
    with RunDisplay(Terminal(stderr=True)) as display:
        display.show_run(run)
        if run.outcome in _PAUSED_BY_ENGINE and run.state == run_pb2.RUN_STATE_PAUSED:
            return run

        connected = True

        def lost(error: ServiceError) -> None:
            nonlocal connected
            if connected:
                display.tell(f"the connection is lost ({error.message}); trying again")
            connected = False

        async with aclosing(runs.watch(run_id, on_lost=lost)) as events:
            async for event in events:
                if not connected:
                    display.tell("connected again")
                    connected = True
                if event.HasField("run"):
                    run = event.run
                    display.show_run(run)
                    if run.outcome in _PAUSED_BY_ENGINE and run.state == run_pb2.RUN_STATE_PAUSED:
                        break
                elif event.HasField("progress"):
                    display.show_progress(event.progress)
    # The last event may have been made before the last sample was counted.
    return await runs.get(run_id)
