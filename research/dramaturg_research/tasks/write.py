"""``dramaturg research tasks write``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask
from dramaturg.api.evaluation.v1.dialogues_pb2 import SimulateDialogueRequest
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import (
    WriteSimulationTaskRequest,
    WriteSimulationTaskResponse,
)
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.authoring import write_sheet
from dramaturg.cli.input_files import checked_rows
from dramaturg.cli.options import AsJson, Target
from dramaturg.cli.output_files import check_writable, write_messages
from dramaturg.cli.platform import fail, gateway, run
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.kinds.dialogues import KIND_NAMES
from dramaturg.service.channel import open_channel
from dramaturg_research.concurrent_calls import call_each
from dramaturg_research.near_duplicates import BY_MEANING, BY_WORDS, find_duplicates
from dramaturg_research.tasks.simulation_tasks import COLUMNS, same_name, sheet_row, task_requests, task_row


class KindName(StrEnum):
    """The kinds of task to write."""

    STATELESS = "stateless"
    STATEFUL = "stateful"


def write(
    examples: Annotated[str, typer.Argument(metavar="TASKS.jsonl", help="Tasks to learn from, one a line.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="The file of new tasks to write.")],
    target: Target = None,
    model: Annotated[str, typer.Option(metavar="MODEL", help="The model that writes.")] = "",
    kind: Annotated[list[KindName] | None, typer.Option(help="The kind. Default: both kinds.")] = None,
    count: Annotated[int, typer.Option(min=1, max=1000, help="Tasks of each kind.")] = 10,
    shown: Annotated[int, typer.Option(min=1, max=20, help="Examples of the kind in each prompt.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the draw of examples.")] = 0,
    near: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Cosine similarity from which tasks are duplicates.")
    ] = 0.9,
    sheet: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for a review sheet. Default: none.")
    ] = None,
    as_json: AsJson = False,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Tasks written at once.")] = 8,
    timeout: Annotated[float, typer.Option(min=0.1, help="Timeout of one task, in seconds.")] = 300.0,
) -> None:
    """Writes new simulation tasks for people to review.

    TASKS.jsonl and DST hold rows of "research simulate". Each new task is written after examples of its
    kind, drawn anew. A task that repeats an example or an earlier task, or has its name, is dropped and
    counted. With --sheet, DIR/review.csv and DIR/review.jsonl hold the same sheet of all tasks, those that
    repeat another and those that could be compared by equal words only marked: accept, edit and reject tasks
    in one of them, then read it back with "dramaturg research tasks review".

    Exit codes: 0 every task was written, 1 some were not, 2 wrong usage or rows.

    For example:

        dramaturg research tasks write tasks.jsonl new.jsonl --count 20 --kind stateful --sheet out/tasks
    """
    with checked_rows(examples, SimulateDialogueRequest) as (rows, _):
        known = [row.request.task for row in rows]
    check_writable(destination)
    asked: dict[str, WriteSimulationTaskRequest] = {}
    for wanted in kind or KindName:
        mine = [task for task in known if KIND_NAMES.get(task.kind) == wanted]
        if not mine:
            fail(f"{examples}: there is no {wanted} task to learn from")
        asked |= task_requests(wanted, mine, count, shown, seed, model)
    answers, repeated, unchecked, uncompared = run(_write(target, known, asked, near, concurrency, timeout))
    made = {name: answer.task for name, answer in answers.items() if not answer.failure}
    kept = [task for name, task in made.items() if name not in repeated]
    write_messages(destination, map(task_row, kept))
    if sheet is not None:
        _write_sheet(sheet, asked, answers, repeated, uncompared)
    for name, answer in answers.items():
        if answer.failure:
            echo(f"{name}: {answer.failure}", err=True)
    if unchecked:
        echo(f"compared by equal words only: {unchecked}", err=True)
        echo(f"tasks that were not compared by meaning: {', '.join(uncompared)}", err=True)
    failed = len(answers) - len(made)
    if as_json:
        summary = {
            "asked": len(answers),
            "failed": failed,
            "dropped": len(repeated),
            "kept": len(kept),
            "unchecked": unchecked,
            "uncompared": uncompared,
            "out": str(destination),
            "sheet": str(sheet or ""),
        }
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        echo(
            f"{len(kept)} of {len(answers)} tasks to {destination}: {failed} were not written, "
            f"{len(repeated)} near-duplicates dropped"
        )
    tell_next("research", "simulate", destination)
    raise typer.Exit(1 if failed else 0)


async def _write(
    target: str | None,
    known: Sequence[SimulationTask],
    asked: Mapping[str, WriteSimulationTaskRequest],
    near: float,
    concurrency: int,
    timeout: float,
) -> tuple[Mapping[str, WriteSimulationTaskResponse], Mapping[str, str], str, Sequence[str]]:
    """The answers and the repeated tasks by id; why new tasks are compared by their words only, and which."""
    async with gateway(target, ["author", "embedding"]) as address, open_channel(address) as channel:
        author = AuthoringServiceStub(channel)

        async def ask(request: WriteSimulationTaskRequest) -> WriteSimulationTaskResponse:
            answer = await author.WriteSimulationTask(request, timeout=timeout)
            if not answer.failure and not answer.HasField("task"):
                answer.failure = "there is no task"
            return answer

        written = await call_each(
            asked.values(), ask, lambda why: WriteSimulationTaskResponse(failure=why), concurrency
        )
        answers = dict(zip(asked, written, strict=True))
        made = [name for name, answer in answers.items() if not answer.failure]
        for name in made:
            answers[name].task.id = name
        tasks = [*known, *(answers[name].task for name in made)]
        found = await find_duplicates(channel, [task.description for task in tasks], near)
        earlier = [same_name(tasks, place) if one is None else one for place, one in enumerate(found.earlier)]
        repeats = zip(made, earlier[len(known) :], strict=True)
        repeated = {name: tasks[one].id or tasks[one].name for name, one in repeats if one is not None}
        # Known tasks are embedded first: where one has no vector, no new task has one.
        uncompared = [made[one - len(known)] for one in found.uncompared if one >= len(known)]
        return answers, repeated, found.unchecked, uncompared


def _write_sheet(
    folder: Path,
    asked: Mapping[str, WriteSimulationTaskRequest],
    answers: Mapping[str, WriteSimulationTaskResponse],
    repeated: Mapping[str, str],
    uncompared: Sequence[str],
) -> None:
    rows = []
    for name, answer in answers.items():
        if not answer.failure:
            completions = answer.provenance.completions
            model = completions[-1].answered_model if completions else asked[name].options.model
            compared = BY_WORDS if name in uncompared else BY_MEANING
            rows.append(sheet_row(answer.task, repeated.get(name, ""), compared, model))
    try:
        write_sheet(folder, COLUMNS, rows)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")
