"""``dramaturg runs list`` and ``status``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table as Grid

from dramaturg.api.evaluation.v1.run_pb2 import Dataset, Run, RunState
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import output
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunId, RunTarget, ask
from dramaturg.cli.runs.run_text import describe
from dramaturg.cli.runs.spec import SHOWN_ERRORS, parse_labels
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import tell_next
from dramaturg.results.gold_answers import describe_missing
from dramaturg.results.run_text import (
    describe_hindrance,
    describe_progress,
    kind_name,
    outcome_name,
    state_name,
)
from dramaturg.run_client import ENDED, RunClient
from dramaturg.tables.model import Table, columns

app = typer.Typer()


class StateName(StrEnum):
    """The state of a run (``evaluation.v1.RunState``)."""

    PREPARING = "preparing"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"


Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label of the run; repeatable.")
]


@app.command("list")
def list_runs(
    target: RunTarget = DEFAULT_TARGET,
    state: Annotated[
        list[StateName] | None, typer.Option(help="Only runs in this state; repeatable.")
    ] = None,
    label: Labels = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Lists runs, the newest first.

    For example:

        dramaturg runs list --state running --label team=summaries
    """
    states = [RunState.Value(f"RUN_STATE_{name.upper()}") for name in state or ()]
    labels = parse_labels(label or ())
    found = ask(target, lambda runs: _find(runs, states, labels, limit))
    if as_json:
        typer.echo(json.dumps({"runs": [describe(run) for run in found]}, ensure_ascii=False))
    else:
        print_tables(output(), _table(found) if found else "there are no such runs")
    if found:
        tell_next("runs", "status", found[0].id, "--target", target)


@app.command("status")
def status(run_id: RunId, target: RunTarget = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """Shows the state of a run, its progress, incident, cost and the invalid rows of its dataset."""
    run = ask(target, lambda runs: runs.get(run_id))
    print_run(run, as_json=as_json)
    tell_next_of(run, target)


def tell_next_of(run: Run, target: str) -> None:
    """Writes the command that a user of a run is likely to want next: to watch it, or its report."""
    if run.state == RunState.RUN_STATE_PAUSED:
        tell_next("runs", "resume", run.id, "--target", target)
    elif run.state not in ENDED:
        tell_next("runs", "watch", run.id, "--target", target)
    elif run.progress.succeeded_count:
        tell_next("show", run.id, "--target", target)


def print_run(run: Run, *, as_json: bool) -> None:
    """Prints a run, as one JSON object or for people."""
    if as_json:
        typer.echo(json.dumps(describe(run), ensure_ascii=False))
        return
    table = Grid(box=None, show_header=False, pad_edge=False)
    for name, value in _members(run):
        if value:
            table.add_row(name, escape(value))
    console = output()
    console.print(table)
    for error in run.dataset.row_errors[:SHOWN_ERRORS]:
        field = f"{error.field}: " if error.field else ""
        console.print(f"line {error.line}: {field}{error.description}")
    more = run.dataset.invalid_row_count - SHOWN_ERRORS
    if more > 0:
        console.print(f"and {more:,} more; --json has the first {len(run.dataset.row_errors)}")


async def _find(
    runs: RunClient, states: Sequence[RunState.ValueType], labels: Mapping[str, str], limit: int
) -> Sequence[Run]:
    found: list[Run] = []
    async with aclosing(runs.find(states, labels)) as listed:
        async for run in listed:
            found.append(run)
            if len(found) == limit:
                break
    return found


_STATE_STYLES = {
    RunState.RUN_STATE_SUCCEEDED: "green",
    RunState.RUN_STATE_PARTIAL: "yellow",
    RunState.RUN_STATE_PAUSED: "yellow",
    RunState.RUN_STATE_FAILED: "red",
}


def _table(runs: Iterable[Run]) -> Table:
    figures = ("samples", "failed", "abstained", "created")
    table = Table("", columns("run", "name", texts=("evaluation", "state"), figures=figures), heads=2)
    for run in runs:
        progress = run.progress
        table.add_row(
            run.id,
            run.spec.display_name,
            kind_name(run),
            state_name(run.state),
            f"{progress.succeeded_count + progress.failed_count:,}/{progress.sample_count:,}",
            f"{progress.failed_count:,}",
            f"{progress.abstention_count:,}/{progress.judgement_count:,}",
            run.create_time.ToDatetime().isoformat(" ", "minutes"),
            style=_STATE_STYLES.get(run.state, ""),
        )
    return table


def _members(run: Run) -> Iterable[tuple[str, str]]:
    described = describe(run)
    yield "run", run.id
    yield "name", run.spec.display_name
    yield "evaluation", kind_name(run)
    yield "state", state_name(run.state)
    yield "outcome", outcome_name(run.outcome)
    yield "why", run.state_reason
    yield "attempt", str(run.attempt) if run.attempt > 1 else ""
    yield "models", ", ".join(run.spec.models)
    yield (
        "judges",
        ", ".join(
            f"{one.role}={one.judge or 'default'}{f' ({one.model})' if one.model else ''}"
            for one in run.spec.judges
        ),
    )
    yield "labels", ", ".join(f"{key}={value}" for key, value in described["labels"].items())
    yield "progress", describe_progress(run.progress, run.state)
    yield "incident", describe_hindrance(run.progress, time.time())
    yield "abstentions", ", ".join(f"{reason} {count}" for reason, count in described["abstentions"].items())
    yield "gold answers", describe_missing(run.progress.gold_answers)
    yield "interrupted", str(run.progress.interrupted_sample_count or "")
    yield "dataset", run.dataset.uri or _source(run.spec.dataset)
    yield "rows", f"{run.dataset.row_count:,} valid, {run.dataset.invalid_row_count:,} not"
    yield "sha256", run.dataset.sha256
    for name in ("create_time", "start_time", "end_time"):
        yield name.removesuffix("_time"), described[name] or ""


def _source(dataset: Dataset) -> str:
    """The dataset of a run that has not read it."""
    uploaded = f"datasets/{dataset.dataset_id}" if dataset.dataset_id else ""
    return dataset.uri or uploaded or "sent with the request"
