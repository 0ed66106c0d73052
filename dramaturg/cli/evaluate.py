"""``dramaturg evaluate``."""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.cli.display import ProgressBar, show_tables
from dramaturg.cli.overrides import GoldAnswerName, MechanismName, Overrides
from dramaturg.cli.platform import UsageError, fail, gateway, run
from dramaturg.cli.results import ResultWriter
from dramaturg.cli.rows import RowFile, RowsError, open_rows
from dramaturg.cli.running import evaluate_rows
from dramaturg.cli.tally import Tally
from dramaturg.client import DramaturgClient, ServiceError

app = typer.Typer(no_args_is_help=True, help="Evaluates what language models wrote.")

WINDOW = 16
"""How many rows a slow one may hold up, for each that is evaluated at once."""


@app.callback()
def evaluate() -> None:
    """Evaluates what language models wrote."""


@app.command("scripts")
def scripts(
    file: Annotated[
        str, typer.Argument(metavar="FILE.jsonl", help="The samples, one a line; - reads standard input.")
    ],
    target: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The gateway. Default: one started here.")
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=NAME", help="The judge of a role; a role named again gets a panel."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="[ROLE=]MODEL", help="The model of a role's judges, or of all judges."),
    ] = None,
    mechanism: Annotated[
        MechanismName | None, typer.Option(help="Who judges. Default: as the row says, else agents.")
    ] = None,
    gold_answer: Annotated[
        GoldAnswerName | None,
        typer.Option(help="Where the gold answer comes from. Default: as the row says, else pooled."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where results go. Default: out/<time, UTC>.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output, and no table.")
    ] = False,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Samples evaluated at once.")] = 8,
    group_by: Annotated[
        str, typer.Option(metavar="TAG", help="A tag by whose values verdicts are also counted.")
    ] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many samples.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="The most seconds for one sample.")] = 600.0,
) -> None:
    """Evaluates scripts (ABSEval): seven verdicts a candidate.

    Each line is an EvaluateScriptsRequest in protobuf's JSON. All lines are checked before anything is
    asked. DIR/results.jsonl gets one ScriptsResult a line and DIR/errors.jsonl the samples that failed, both
    in the order of the rows.

    Exit codes: 0 all samples have a result, 1 some failed, 2 wrong usage or rows, 130 interrupted.

    For example:

        dramaturg evaluate scripts tasks.jsonl

        dramaturg evaluate scripts tasks.jsonl --judge critic=llm --judge critic=offline --model gpt-4o

        dramaturg evaluate scripts - --target localhost:50051 --mechanism single-judge --json < tasks.jsonl
    """
    try:
        overrides = Overrides.parse(judge or (), model or (), mechanism, gold_answer)
    except ValueError as error:
        fail(str(error))
    folder = out or Path("out") / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    tally = Tally(group_by)
    with ExitStack() as stack:
        try:
            rows = stack.enter_context(open_rows(file, limit))
            total = rows.check()
        except OSError as error:
            fail(f"{file}: {error.strerror or error}")
        except RowsError as error:
            fail(f"{file}: {error.count} problems\n{error}")
        if not total:
            fail(f"{file}: there are no rows")
        try:
            run(_evaluate(target, rows, total, overrides, folder, tally, concurrency, timeout))
        finally:
            if tally.samples:
                _report(tally, folder, as_json=as_json)
    raise typer.Exit(1 if tally.failed_samples else 0)


async def _evaluate(
    target: str | None,
    rows: RowFile,
    total: int,
    overrides: Overrides,
    folder: Path,
    tally: Tally,
    concurrency: int,
    timeout: float,
) -> None:
    async with gateway(target) as address, DramaturgClient(address) as client:
        await _check_judges(client, overrides)
        try:
            writer = ResultWriter(folder, WINDOW * concurrency)
        except OSError as error:
            raise UsageError(f"{folder}: {error.strerror or error}") from error
        with writer, ProgressBar(total) as progress:
            await evaluate_rows(
                client, rows, overrides, writer, tally, progress, concurrency=concurrency, timeout=timeout
            )


async def _check_judges(client: DramaturgClient, overrides: Overrides) -> None:
    """Refuses a judge that nobody knows before every row fails of it."""
    for role, name in overrides.judges:
        try:
            await client.check_judge(role, name)
        except ServiceError as error:
            if error.reason == error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN:
                raise UsageError(f"--judge {role}={name}: {error.message}") from error
            # Whatever else is wrong may pass, or shows in every sample.
            return


def _report(tally: Tally, folder: Path, *, as_json: bool) -> None:
    results = folder / "results.jsonl"
    if as_json:
        typer.echo(json.dumps({**tally.summary(), "results": str(results)}, ensure_ascii=False))
        return
    console = Console()
    show_tables(console, tally)
    if tally.failed_samples:
        console.print(
            f"{tally.failed_samples} of {tally.samples} samples failed: see {folder / 'errors.jsonl'}",
            style="red",
        )
    console.print(f"results: {results}", highlight=False, soft_wrap=True)
