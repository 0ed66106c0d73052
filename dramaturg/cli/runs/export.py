"""``dramaturg runs export`` and ``report``: what a run came to, as a file."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1 import run_service_pb2
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import UsageError, fail
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunId, RunTarget, ask
from dramaturg.cli.runs.results import Measures, Models, Outcomes, Reasons, make_filter
from dramaturg.cli.terminal import tell_next
from dramaturg.datasets.source import STANDARD_INPUT
from dramaturg.run_client import RunClient

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

OutFile = Annotated[
    Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write; - is standard output.")
]


@app.command("export")
def export(
    run_id: RunId,
    out: OutFile,
    target: RunTarget = DEFAULT_TARGET,
    form: Annotated[
        ExportName | None,
        typer.Option("--format", help="The format. Default: by the end of FILE's name, else jsonl."),
    ] = None,
    measure: Measures = None,
    model: Models = None,
    outcome: Outcomes = None,
    reason: Reasons = None,
    as_json: AsJson = False,
) -> None:
    """Writes all judgements of a run to a file, one a row; samples-jsonl: one result a line.

    For example:

        dramaturg runs export RUN -o judgements.parquet

        dramaturg runs export RUN -o results.jsonl --format samples-jsonl
    """
    chosen = form or _ENDS.get(out.suffix.lower(), ExportName.JSONL)
    where = make_filter(measure, model, outcome, reason)
    if chosen is ExportName.SAMPLES_JSONL and where.ByteSize():
        fail("samples-jsonl has whole samples, of which --measure and the like cannot choose")
    _save(target, out, lambda runs: runs.export(run_id, _FORMATS[chosen], where), as_json=as_json)
    if chosen is ExportName.SAMPLES_JSONL and str(out) != STANDARD_INPUT:
        tell_next("report", out)


@app.command("report")
def report(
    run_id: RunId,
    out: OutFile,
    target: RunTarget = DEFAULT_TARGET,
    samples: Annotated[
        int, typer.Option(min=0, max=10_000, help="Maximum number of samples shown one by one. 0: 500.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Writes the report of a run as one self-contained HTML page.

    For example:

        dramaturg runs report RUN -o report.html
    """
    _save(target, out, lambda runs: runs.report(run_id, sample_limit=samples), as_json=as_json)


def _save(
    target: str, out: Path, pieces: Callable[[RunClient], AsyncGenerator[bytes]], *, as_json: bool
) -> None:
    if str(out) == STANDARD_INPUT:
        if as_json:
            fail("--json and -o - both write to standard output")
        ask(target, lambda runs: _print(pieces(runs)))
        return
    size = ask(target, lambda runs: _write(out, pieces(runs)))
    typer.echo(json.dumps({"file": str(out), "bytes": size}) if as_json else f"{size:,} bytes to {out}")


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
