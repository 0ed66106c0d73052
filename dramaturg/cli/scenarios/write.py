"""``dramaturg scenarios write``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import grpc
import typer

from dramaturg.api.common.v1.decision_pb2 import Choice
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    ScenarioForm,
    WriteScenarioRequest,
    WriteScenarioResponse,
)
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.authoring.duplicates import find_duplicates
from dramaturg.authoring.scenario_sheet import TARGETS, Draft, sheet_row, write_sheet
from dramaturg.cli.evaluation import default_folder
from dramaturg.cli.input_files import checked_rows
from dramaturg.cli.options import AsJson, Target
from dramaturg.cli.platform import fail, gateway, run
from dramaturg.cli.terminal import echo
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import from_rpc_error


class FormName(StrEnum):
    """The form of a scenario (``generation.v1.ScenarioForm``)."""

    VERB_PHRASE = "verb-phrase"
    HARD_VERB_PHRASE = "hard-verb-phrase"
    USER_PROFILE = "user-profile"


def write(
    file: Annotated[str, typer.Argument(metavar="BRIEFS.jsonl", help="The briefs, one a line.")],
    target: Target = None,
    model: Annotated[str, typer.Option(metavar="MODEL", help="The model that writes.")] = "",
    form: Annotated[FormName | None, typer.Option(help="The form. Default: that of the row.")] = None,
    count: Annotated[int, typer.Option(min=1, max=100, help="Scenarios for each option.")] = 4,
    near: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Cosine similarity from which scenarios are duplicates.")
    ] = 0.9,
    keep_duplicates: Annotated[
        bool,
        typer.Option("--keep-duplicates", help="Mark near-duplicates on the sheet instead of dropping them."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the sheet. Default: out/<time, UTC>.")
    ] = None,
    as_json: AsJson = False,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Scenarios written at once.")] = 8,
    timeout: Annotated[float, typer.Option(min=0.1, help="Timeout of one scenario, in seconds.")] = 300.0,
) -> None:
    """Writes scenarios for people to review (Choice-75, section 2.4).

    Each line is a WriteScenarioRequest in protobuf's JSON; without a target one is written for either option.
    DIR/review.csv and DIR/review.jsonl hold the same sheet: accept, edit and label scenarios in one of them,
    then read it back with "dramaturg scenarios review". Near-duplicates within a brief are dropped and
    counted; a scenario that names an option is marked in the column leaks_option.

    Exit codes: 0 every scenario was written, 1 some were not, 2 wrong usage or rows.

    For example:

        dramaturg scenarios write briefs.jsonl --form hard-verb-phrase --count 6 --model my-model
    """
    with checked_rows(file, WriteScenarioRequest) as (rows, total):
        requests = [(row.line, row.request) for row in rows]
    asked = [one for line, request in requests for one in _spread(line, request, count, form, model)]
    drafts, earlier, unchecked = run(_write(target, asked, near, concurrency, timeout))
    written = [draft for draft in drafts if draft.response.scenario]
    dropped = [one for one in earlier if one] if not keep_duplicates else []
    kept = [
        sheet_row(draft, repeated)
        for draft, repeated in zip(written, earlier, strict=True)
        if keep_duplicates or not repeated
    ]
    try:
        table, lines = write_sheet(out or default_folder(), kept)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")
    failures = [draft for draft in drafts if not draft.response.scenario]
    for draft in failures:
        echo(f"{draft.id}: {draft.response.failure or 'there is no scenario'}", err=True)
    if unchecked:
        echo(f"near-duplicates are not looked for, only equal words: {unchecked}", err=True)
    summary = {
        "briefs": total,
        "asked": len(drafts),
        "failed": len(failures),
        "near_duplicates": sum(bool(one) for one in earlier),
        "dropped": len(dropped),
        "leaking": sum(row["leaks_option"] == "yes" for row in kept),
        "kept": len(kept),
        "unchecked": unchecked,
        "csv": str(table),
        "jsonl": str(lines),
    }
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        echo(
            f"{len(kept)} of {len(drafts)} scenarios to {table} and {lines}: {len(failures)} were not "
            f"written, {len(dropped)} near-duplicates dropped, {summary['leaking']} name an option"
        )
    raise typer.Exit(1 if failures else 0)


def _spread(
    line: int, request: WriteScenarioRequest, count: int, form: FormName | None, model: str
) -> Sequence[tuple[str, WriteScenarioRequest]]:
    """The requests of a row: ``count`` for each option that it targets."""
    wanted = [request.target] if request.target in TARGETS else list(TARGETS)
    spread = []
    for target in wanted:
        for index in range(count):
            one = WriteScenarioRequest()
            one.CopyFrom(request)
            one.target = Choice.ValueType(target)
            one.options.repeat_index += index
            one.options.model = model or one.options.model
            if form is not None:
                name = f"SCENARIO_FORM_{form.value.upper().replace('-', '_')}"
                one.form = ScenarioForm.Value(name)
            spread.append((f"{line}/{TARGETS[target]}/{index}", one))
    return spread


async def _write(
    target: str | None,
    asked: Sequence[tuple[str, WriteScenarioRequest]],
    near: float,
    concurrency: int,
    timeout: float,
) -> tuple[Sequence[Draft], Sequence[str], str]:
    """The drafts; the id that each written one repeats, or nothing; why that is not known, or nothing."""
    slots = asyncio.Semaphore(concurrency)
    async with gateway(target, ["author", "embedding"]) as address, open_channel(address) as channel:
        author = AuthoringServiceStub(channel)

        async def draft(name: str, request: WriteScenarioRequest) -> Draft:
            async with slots:
                try:
                    response = await author.WriteScenario(request, timeout=timeout)
                except grpc.aio.AioRpcError as failure:
                    error = from_rpc_error(failure)
                    response = WriteScenarioResponse(failure=f"{error.code.name}: {error.message}")
            return Draft(name, request, response)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(draft(name, request)) for name, request in asked]
        drafts = [task.result() for task in tasks]
        written = [one for one in drafts if one.response.scenario]
        repeated = {}
        unchecked = ""
        for line in dict.fromkeys(one.id.split("/")[0] for one in written):
            # Only scenarios of one brief can repeat each other.
            mine = [one for one in written if one.id.split("/")[0] == line]
            found = await find_duplicates(channel, [one.response.scenario for one in mine], near)
            unchecked = unchecked or found.unchecked
            for one, earlier in zip(mine, found.earlier, strict=True):
                repeated[one.id] = "" if earlier is None else mine[earlier].id
    return drafts, [repeated[one.id] for one in written], unchecked
