"""``dramaturg runs watch``: shows a run until it has ended, live on a terminal, as lines, or as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import aclosing
from typing import Annotated, Any, NoReturn, Self

import typer
from google.protobuf.timestamp_pb2 import Timestamp
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_UNSPECIFIED,
    DatasetFormat,
    Run,
    RunIncident,
    RunProgress,
    RunState,
)
from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswerFigures
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import INTERRUPTED, PARTIAL, output
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunId, RunTarget, ask
from dramaturg.cli.terminal import BAR_WIDTH, Terminal, echo, printable, tell_next
from dramaturg.client import ServiceError
from dramaturg.results.names import value_name
from dramaturg.results.quantities import usage_summary
from dramaturg.results.run_text import (
    describe_hindrance,
    describe_progress,
    kind_name,
    outcome_name,
    state_name,
)
from dramaturg.run_client import RunClient

LINE_SECONDS = 5.0
"""The least seconds between two lines where there is no terminal."""
INCIDENT_SECONDS = 30.0
"""How often an unchanged incident is repeated there."""


class RunDisplay:
    """Use it in ``with``.

    Args:
        console: Where it is shown.
    """

    def __init__(self, console: Terminal) -> None:
        self._console = console
        self._state = RUN_STATE_UNSPECIFIED
        self._lines = _Lines()
        self._live: Progress | None = None
        self._task = TaskID(0)
        if console.is_terminal:
            # In a column that may be folded, so that nothing is cut where the terminal is narrow.
            described = TextColumn("{task.description}", table_column=Column(), markup=False)
            state = TextColumn("{task.fields[state]}")
            # The command prints state and progress at the end, so the live line goes then.
            self._live = Progress(state, BarColumn(BAR_WIDTH), described, console=console, transient=True)
            self._task = self._live.add_task("", total=None, state="")

    def show_run(self, run: Run) -> None:
        """Shows state and progress."""
        if run.state != self._state:
            self._state = run.state
            if self._live is None:
                state = state_name(run.state)
                self.tell(f"{run.id} {state}{f': {run.state_reason}' if run.state_reason else ''}")
        self.show_progress(run.progress)

    def show_progress(self, progress: RunProgress) -> None:
        """Shows the progress, and the incident that hinders it."""
        described = describe_progress(progress, self._state)
        hindrance = describe_hindrance(progress, time.time())
        if self._live is not None:
            self._live.update(
                self._task,
                completed=progress.succeeded_count + progress.failed_count,
                total=progress.sample_count or None,
                description=printable(f"{described}\n{hindrance}" if hindrance else described),
                state=state_name(self._state),
            )
        else:
            for line in self._lines.due(
                described, hindrance, progress.incident.description or _providers(progress.model_waits)
            ):
                self.tell(line)

    def tell(self, message: str) -> None:
        """Shows a line that stays."""
        self._console.print(message, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


def _providers(waits: Iterable[str]) -> str:
    """What of the waits does not change with the time."""
    return "; ".join(wait.partition(",")[0] for wait in waits)


class _Lines:
    """Decides which lines are worth printing, where each one stays."""

    def __init__(self) -> None:
        self._printed = -LINE_SECONDS
        self._described = ""
        self._warned = -INCIDENT_SECONDS
        self._incident = ""

    def due(self, described: str, hindrance: str, incident: str) -> list[str]:
        """What is to be printed now.

        Args:
            described: How far the run is.
            hindrance: What keeps it from getting further, for how long. Empty: nothing does.
            incident: What of it does not change with the time.
        """
        now, lines = time.monotonic(), list[str]()
        if described != self._described and now - self._printed >= LINE_SECONDS:
            self._printed, self._described = now, described
            lines.append(described)
        if hindrance and (incident != self._incident or now - self._warned >= INCIDENT_SECONDS):
            self._warned, self._incident = now, incident
            lines.append(hindrance)
        return lines


def describe(run: Run) -> dict[str, Any]:
    """A run as it is printed by ``--json`` (documented in docs/reference/cli.md; keep it stable)."""
    progress, spec = run.progress, run.spec
    running = run.state == RunState.RUN_STATE_RUNNING
    known_rate = running and progress.HasField("samples_per_second")
    known_rest = running and progress.HasField("remaining_time")
    return {
        "id": run.id,
        "name": spec.display_name,
        "evaluation": kind_name(run),
        "state": state_name(run.state),
        "state_reason": run.state_reason,
        "outcome": outcome_name(run.outcome),
        "attempt": run.attempt,
        "models": list(spec.models),
        "judges": [{"role": one.role, "judge": one.judge, "model": one.model} for one in spec.judges],
        "seen_judges": [
            {
                "role": one.role,
                "judge": one.judge,
                "name": one.name,
                "version": one.version,
                "first_seen_time": _time(one.first_seen_time),
            }
            for one in run.judges
        ],
        "labels": dict(sorted(spec.labels.items())),
        "samples": progress.sample_count,
        "succeeded": progress.succeeded_count,
        "failed": progress.failed_count,
        "failures": dict(sorted(progress.failures_by_reason.items())),
        "running": progress.running_count,
        "batch_waiting": progress.batch_waiting_count,
        "interrupted": progress.interrupted_sample_count,
        "judgements": progress.judgement_count,
        "abstained": progress.abstention_count,
        "abstentions": dict(sorted(progress.abstentions_by_reason.items())),
        "coverage": progress.coverage if progress.HasField("coverage") else None,
        "gold_answers": _describe_gold_answers(progress.gold_answers)
        if progress.HasField("gold_answers")
        else None,
        "usage": usage_summary(progress.usage),
        "samples_per_second": progress.samples_per_second if known_rate else None,
        "remaining_seconds": progress.remaining_time.ToNanoseconds() / 1e9 if known_rest else None,
        "incident": _describe_incident(progress.incident) if progress.HasField("incident") else None,
        "last_advance_time": _time(progress.last_advance_time),
        "dataset": {
            "uri": run.dataset.uri,
            "format": value_name(DatasetFormat, run.dataset.format),
            "sha256": run.dataset.sha256,
            "bytes": run.dataset.byte_count,
            "rows": run.dataset.row_count,
            "invalid_rows": run.dataset.invalid_row_count,
            "row_errors": [
                {"line": error.line, "field": error.field, "description": error.description}
                for error in run.dataset.row_errors
            ],
        },
        "create_time": _time(run.create_time),
        "start_time": _time(run.start_time),
        "update_time": _time(run.update_time),
        "end_time": _time(run.end_time),
        "version": run.created_by_version,
    }


def _describe_gold_answers(figures: GoldAnswerFigures) -> dict[str, Any]:
    return {
        "samples": figures.sample_count,
        "missing": figures.missing_count,
        "missing_by_reason": dict(sorted(figures.missing_by_reason.items())),
    }


def _describe_incident(incident: RunIncident) -> dict[str, Any]:
    return {
        "description": incident.description,
        "begin_time": _time(incident.begin_time),
        "failed_attempts": incident.failed_attempt_count,
        "next_attempt_time": _time(incident.next_attempt_time),
    }


def _time(moment: Timestamp) -> str | None:
    # One that is absent reads as the epoch, at which no run was made.
    return moment.ToJsonString() if moment.ToNanoseconds() else None


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
