"""``dramaturg runs results``: the judgements of a run, as a table or as a file."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict

from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Outcome
from dramaturg.api.evaluation.v1 import run_service_pb2
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.run_service_pb2 import ResultFilter
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import UsageError, fail, output
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunId, RunTarget, ask
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.source import STANDARD_INPUT
from dramaturg.results.names import outcome_name, reason_name
from dramaturg.run_client import RunClient
from dramaturg.tables.model import Table, columns

app = typer.Typer()


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
