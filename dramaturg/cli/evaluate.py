"""``dramaturg eval``: a file of any kind. ``--kind`` or the first row names the kind."""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from dataclasses import asdict
from typing import Annotated

import typer

from dramaturg.cli.evaluation import Job
from dramaturg.cli.kind_options import KindOptions, TableColumns
from dramaturg.cli.options import takes_groups
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo, printable
from dramaturg.datasets import Format
from dramaturg.datasets.source import STANDARD_INPUT
from dramaturg.kinds import FILE_KINDS

__all__ = ["app"]

_TABLES = ("texts", "pairs")
"""The kinds that a table with a text a row, or a recording, may have."""

app = typer.Typer()


@app.command("eval", no_args_is_help=True)
@takes_groups
def evaluate(
    own: KindOptions,
    columns: TableColumns,
    job: Job,
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help=f"The kind of the rows: {', '.join(FILE_KINDS)}. Default: as the first row says.",
        ),
    ] = "",
) -> None:
    """Evaluates what language models wrote: any texts by a rubric, or rows of another kind.

    FILE is JSON Lines, JSON, CSV, TSV, Parquet or XLSX; - reads standard input. A table with a text a row has
    texts, and its columns are found by their names. So has what LangSmith or Langfuse exports, a log of
    Inspect, and spans of OpenTelemetry (docs/reference/texts.md). Every row of another kind is a request of
    that kind (docs/reference/datasets.md). All rows are checked before the first call. DIR/results.jsonl gets
    one result a line and DIR/errors.jsonl the samples that failed. The same command continues after an
    interruption.

        texts      any texts by a rubric: criteria that pass, fail or have a scale

        pairs      pairs of texts: by roles or a rubric, and baselines (DRPE)

        scripts    scripts: seven verdicts a candidate (ABSEval)

        decisions  models choose between two options (Choice-75)

        dialogues  replies are rated from 1 to 10 and compared (SimulBench)

        graphs     script graphs that models predict or write (proScript)

    Rarer fields of rows and of the run are set by --set (docs/reference/cli.md).

    Exit codes: 0 all samples have a result, 1 some failed or nothing was judged, 2 wrong usage or rows,
    4 fewer than 0.9 of the judgements were made, or the budget is reached, 130 interrupted.

    For example:

        dramaturg eval answers.csv --criteria rubric.toml

        dramaturg eval answers.csv --criteria builtin:groundedness --context passages

        dramaturg eval tasks.jsonl --model gpt-4o --model my-model --judge-model gpt-5-mini -o out/tasks

        dramaturg eval dev.jsonl --model my-model --set option_order=both --set sampling.temperature=0

        dramaturg eval scripts.jsonl --model gpt-4o --model my-model --pair all
    """
    if kind and kind not in FILE_KINDS:
        fail(f"--kind {kind!r}: is none of {', '.join(FILE_KINDS)}")
    if not kind and job.by_reference:
        fail("--by-reference: name the kind with --kind: the gateway reads the rows")
    if job.file == STANDARD_INPUT:
        _keep_standard_input()
    named = any(asdict(columns).values())
    if not kind:
        kind, why = ("texts", "") if named else infer_kind(job.file, job.format)
        if why:  # a table is described by its kind
            echo(printable(f"{job.file}: {kind}, {why}"), err=True)
    if named and kind not in _TABLES:
        fail(f"--text and other columns are for tables of texts, and {job.file} has {kind}")
    command = FILE_KINDS[kind].command
    own.check(kind, command.USED)
    try:
        command.evaluate(own, job, *([columns] if kind in _TABLES else []))
    except ValueError as error:
        fail(str(error))


def infer_kind(file: str, form: Format | None = None) -> tuple[str, str]:
    """``dramaturg.formats.evaluated_file.infer_kind`` as a command fails.

    Raises:
        typer.Exit: 2 with a message where the file cannot be read, or its first row fits no kind.
    """
    from dramaturg.formats import evaluated_file

    try:
        return evaluated_file.infer_kind(file, form)
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    except evaluated_file.FileError as error:
        named = f"; name the column of texts with --text: {', '.join(error.columns)}"
        fail(f"{file}: {error}{named if error.columns else ''}")


def _keep_standard_input() -> None:
    """Keeps standard input in a temporary file that is read in its place."""
    kept = tempfile.TemporaryFile()  # noqa: SIM115 - it is open until the command ends
    if (source := getattr(sys.stdin, "buffer", None)) is not None:
        shutil.copyfileobj(source, kept)
    kept.seek(0)
    sys.stdin = io.TextIOWrapper(kept)
