"""``dramaturg runs list``, ``status`` and ``results``."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict
from rich.markup import escape
from rich.table import Table as Grid

from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Outcome
from dramaturg.api.evaluation.v1 import run_service_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, Run, RunState
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.run_service_pb2 import ResultFilter
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import UsageError, fail, output
from dramaturg.cli.runs.connection import DEFAULT_TARGET, SHOWN_ERRORS, RunId, RunTarget, ask, parse_labels
from dramaturg.cli.runs.watch import describe
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.source import STANDARD_INPUT
from dramaturg.results.gold_answers import describe_missing
from dramaturg.results.names import outcome_name, reason_name
from dramaturg.results.run_text import (
    describe_hindrance,
    describe_progress,
    kind_name,
    state_name,
)
from dramaturg.results.run_text import (
    outcome_name as run_outcome_name,
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
    yield "outcome", run_outcome_name(run.outcome)
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


class ExportName(StrEnum):
    """How judgements are exported (``evaluation.v1.ExportFormat``)."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    SAMPLES_JSONL = "samples-jsonl"


_FORMATS = {
    ExportName.JSONL: run_service_pb2.EXPORT_FORMAT_JSONL,
    ExportName.CSV: run_service_pb2.EXPORT_FORMAT_CSV,
    ExportName.PARQUET: run_service_pb2.EXPORT_FORMAT_PARQUET,
    ExportName.SAMPLES_JSONL: run_service_pb2.EXPORT_FORMAT_SAMPLES_JSONL,
}
_ENDS = {".csv": ExportName.CSV, ".parquet": ExportName.PARQUET}

LARGEST_PAGE = 10_000
"""The most judgements of one page (``evaluation.v1.ListResultsRequest.page_size``)."""

Measures = Annotated[
    list[str] | None, typer.Option("--measure", help="Only judgements by this measure; repeatable.")
]
Models = Annotated[
    list[str] | None, typer.Option("--model", help="Only judgements of this model; repeatable.")
]
Outcomes = Annotated[
    list[str] | None,
    typer.Option("--outcome", help="Only this outcome: pass, fail or abstain; repeatable."),
]
Reasons = Annotated[
    list[str] | None,
    typer.Option("--reason", help="Only abstentions for this reason, e.g. timed-out; repeatable."),
]


def make_filter(
    measures: Sequence[str] | None,
    models: Sequence[str] | None,
    outcomes: Sequence[str] | None,
    reasons: Sequence[str] | None,
) -> ResultFilter:
    """Which judgements are wanted.

    Raises:
        typer.Exit: 2 with a message where an outcome or reason is none.
    """
    return ResultFilter(
        measures=measures,
        models=models,
        outcomes=[Outcome.Value(_member("--outcome", Outcome, "OUTCOME_", text)) for text in outcomes or ()],
        abstain_reasons=[
            AbstainReason.Value(_member("--reason", AbstainReason, "ABSTAIN_REASON_", text))
            for text in reasons or ()
        ],
    )


@app.command("results")
def results(
    run_id: RunId,
    target: RunTarget = DEFAULT_TARGET,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write all to a file; - is standard output."),
    ] = None,
    form: Annotated[
        ExportName | None,
        typer.Option("--format", help="The format of FILE. Default: by the end of its name, else jsonl."),
    ] = None,
    measure: Measures = None,
    model: Models = None,
    outcome: Outcomes = None,
    reason: Reasons = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of judgements without --out.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Lists the judgements of a run by sample, or writes all of them to a file.

    A file has a judgement a row; in the format samples-jsonl it has the result of a sample a line, as
    "dramaturg show" and "dramaturg report" read it.

    For example:

        dramaturg runs results RUN --outcome fail --measure no_missing_steps

        dramaturg runs results RUN --out judgements.parquet

        dramaturg runs results RUN --out results.jsonl --format samples-jsonl
    """
    where = make_filter(measure, model, outcome, reason)
    if out is not None:
        _write_file(run_id, target, out, form, where, as_json=as_json)
        return
    if form is not None:
        fail("--format is of the file that --out names")
    found = ask(target, lambda runs: _take(runs, run_id, where, limit, numbers_only=not as_json))
    listed, more = found[:limit], len(found) > limit
    if as_json:
        described = [MessageToDict(one, preserving_proto_field_name=True) for one in listed]
        typer.echo(json.dumps({"results": described, "more": more}, ensure_ascii=False))
    else:
        print_tables(output(), _results_table(listed) if listed else "there are no such judgements")
        if more:
            echo(f"there are more than {limit}: --limit, or all with --out FILE", err=True)
    tell_next("report", run_id, "--target", target)


def _write_file(
    run_id: str, target: str, out: Path, form: ExportName | None, where: ResultFilter, *, as_json: bool
) -> None:
    chosen = form or _ENDS.get(out.suffix.lower(), ExportName.JSONL)
    if chosen is ExportName.SAMPLES_JSONL and where.ByteSize():
        fail("samples-jsonl has whole samples, of which --measure and the like cannot choose")
    if str(out) == STANDARD_INPUT:
        if as_json:
            fail("--json and -o - both write to standard output")
        ask(target, lambda runs: _print(runs.export(run_id, _FORMATS[chosen], where)))
    else:
        size = ask(target, lambda runs: _write(out, runs.export(run_id, _FORMATS[chosen], where)))
        typer.echo(json.dumps({"file": str(out), "bytes": size}) if as_json else f"{size:,} bytes to {out}")
    readable = chosen is ExportName.SAMPLES_JSONL and str(out) != STANDARD_INPUT
    tell_next("report", *([out] if readable else [run_id, "--target", target]))


async def _print(pieces: AsyncGenerator[bytes]) -> None:
    async with aclosing(pieces):
        async for piece in pieces:
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


async def _write(out: Path, pieces: AsyncGenerator[bytes]) -> int:
    """Writes a file, which is there only once it is whole; returns its bytes.

    Raises:
        UsageError: It cannot be written.
    """
    size = 0
    try:
        descriptor, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                async with aclosing(pieces):
                    async for piece in pieces:
                        size += file.write(piece)
        except BaseException:
            _remove(Path(name))
            raise
        _replace(Path(name), out)
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror or error}") from error
    return size


def _remove(unfinished: Path) -> None:
    with contextlib.suppress(OSError):
        unfinished.unlink()


def _replace(written: Path, out: Path) -> None:
    # A temporary file is its owner's alone; a file that is written gets what the user's mask gives.
    mask = os.umask(0)
    os.umask(mask)
    written.chmod(0o666 & ~mask)
    written.replace(out)


def _member(option: str, enum: Any, prefix: str, text: str) -> str:
    name = prefix + text.upper().replace("-", "_")
    known = [known for known in enum.keys() if not known.endswith("_UNSPECIFIED")]  # noqa: SIM118 - no mapping
    if name not in known:
        names = ", ".join(one.removeprefix(prefix).lower().replace("_", "-") for one in known)
        fail(f"{option} {text!r}: there are {names}")
    return name


async def _take(
    runs: RunClient, run_id: str, where: ResultFilter, limit: int, *, numbers_only: bool
) -> Sequence[RunResult]:
    """The first judgements, and one more where there are more."""
    found: list[RunResult] = []
    page_size = min(limit + 1, LARGEST_PAGE)
    async with aclosing(
        runs.results(run_id, where, numbers_only=numbers_only, page_size=page_size)
    ) as listed:
        async for result in listed:
            found.append(result.message)
            if len(found) > limit:
                break
    return found


def _results_table(listed: Sequence[RunResult]) -> Table:
    heads = ("outcome", "value", "label", "judge")
    table = Table("", columns("sample", "id", "model", "candidate", "measure", texts=heads), heads=5)
    for one in listed:
        outcome = outcome_name(one.outcome) if one.outcome else ""
        if one.abstain_reason:
            outcome = f"{outcome} ({reason_name(one.abstain_reason)})"
        table.add_row(
            str(one.sample_index),
            one.sample_id,
            one.model,
            one.candidate_id,
            one.measure,
            outcome,
            f"{one.value:g}" if one.HasField("value") else "",
            one.label,
            one.judge,
        )
    return table
