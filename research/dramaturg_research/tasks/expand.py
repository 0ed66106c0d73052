"""``dramaturg research tasks expand``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import grpc
import typer

from dramaturg.api.generation.v1.authoring_datasets_pb2 import (
    ExpandConstraintsRequest,
    ExpandConstraintsResponse,
    ExpandedTask,
)
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.authoring import write_sheet
from dramaturg.cli.evaluation import default_folder
from dramaturg.cli.input_files import refuse
from dramaturg.cli.options import AsJson, Target
from dramaturg.cli.output_files import write_messages
from dramaturg.cli.platform import fail, gateway, run
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets import Row
from dramaturg.datasets.row_file import RowsError, open_rows
from dramaturg.service.channel import open_channel
from dramaturg.service.validation import violations
from dramaturg_research.concurrent_calls import call_each
from dramaturg_research.near_duplicates import BY_MEANING, BY_WORDS, find_duplicates
from dramaturg_research.tasks.script_task_sheet import COLUMNS, sheet_row

EXPANSIONS = "expansions.jsonl"
"""The file of the answers: one ``generation.v1.ExpandConstraintsResponse`` a line, with its provenance."""


def expand(
    file: Annotated[
        str,
        typer.Argument(
            metavar="GOALS",
            help="Abstract goals: one a line with the topic after a tab, or ExpandConstraintsRequests.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Folder for the sheet. Default: out/<time, UTC>."),
    ] = None,
    target: Target = None,
    model: Annotated[str, typer.Option(metavar="MODEL", help="The model that adds constraints.")] = "",
    constraints: Annotated[
        int | None,
        typer.Option(min=1, max=3, help="Maximum number of constraints. Default: that of the row, else 3."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=100, help="Number of expansions of each goal.")] = 1,
    near: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Cosine similarity from which goals are duplicates.")
    ] = 0.95,
    keep_duplicates: Annotated[
        bool,
        typer.Option("--keep-duplicates", help="Mark near-duplicates on the sheet instead of dropping them."),
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N goals.")] = None,
    as_json: AsJson = False,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Goals expanded at once.")] = 8,
    timeout: Annotated[float, typer.Option(min=0.1, help="Timeout of one goal, in seconds.")] = 300.0,
) -> None:
    """Adds one to three constraints to abstract goals, for people to review (ABSEval, section 2).

    Each goal becomes a task with one constraint, one with two and one with three. DIR/review.csv and
    DIR/review.jsonl hold the same sheet: accept, edit and reject tasks in one of them, then read it back with
    "dramaturg research scripts review". A task whose goal nearly repeats that of an earlier one with as many
    constraints is dropped and counted; constraints that the goal does not state are in the column
    not_in_goal.

    Exit codes: 0 every goal was expanded, 1 some were not, 2 wrong usage or rows.

    For example:

        dramaturg research tasks expand goals.txt -o out/tasks --model my-model --count 2
    """
    try:
        rows = read_goals(file, limit)
    except (OSError, RowsError) as error:
        refuse(file, error)
    except ValueError as error:
        fail(f"{file}: {error}")
    if not rows:
        fail(f"{file}: there are no goals")
    asked = spread(rows, count, model, constraints)
    found = run(_expand(target, asked, near, concurrency, timeout))
    failed = {name: answer.failure for name, answer in found.answers.items() if not answer.tasks}
    kept = [one for one in found.drafts if keep_duplicates or one.id not in found.repeated]
    folder = out or default_folder()
    sheet = [
        sheet_row(
            one.id,
            one.task,
            found.repeated.get(one.id, ""),
            BY_WORDS if one.id in found.uncompared else BY_MEANING,
            one.model,
        )
        for one in kept
    ]
    try:
        table, lines = write_sheet(folder, COLUMNS, sheet)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")
    write_messages(folder / EXPANSIONS, found.answers.values())
    for name, why in failed.items():
        echo(f"{name}: {why or 'there are no tasks'}", err=True)
    if found.unchecked:
        echo(f"some or all are compared by only equal words: {found.unchecked}", err=True)
    summary = {
        "goals": len(rows),
        "asked": len(asked),
        "failed": len(failed),
        "tasks": len(found.drafts),
        "near_duplicates": len(found.repeated),
        "kept": len(kept),
        "unworded": sum(bool(row["not_in_goal"]) for row in sheet),
        "unchecked": found.unchecked,
        "csv": str(table),
        "jsonl": str(lines),
    }
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        echo(
            f"{len(kept)} tasks of {len(rows)} goals to {table} and {lines}: {len(failed)} of {len(asked)} "
            f"expansions failed, {len(found.repeated)} near-duplicates "
            f"{'marked' if keep_duplicates else 'dropped'}, {summary['unworded']} do not say a constraint"
        )
    tell_next("research", "scripts", "review", folder / "review.csv")
    raise typer.Exit(1 if failed else 0)


async def _expand(
    target: str | None,
    asked: Mapping[str, ExpandConstraintsRequest],
    near: float,
    concurrency: int,
    timeout: float,
) -> Expansion:
    async with gateway(target, ["author", "embedding"]) as address, open_channel(address) as channel:
        return await expand_goals(channel, asked, near, concurrency, timeout)


def read_goals(file: str, limit: int | None) -> Sequence[Row[ExpandConstraintsRequest]]:
    """The requests of a file.

    Args:
        file: JSON Lines of ExpandConstraintsRequest where the first character is ``{``, else plain text: a
            goal a line, its topic after a tab where it has one. "-" is standard input, JSON Lines only.
        limit: The number of goals to read. None: all.

    Raises:
        OSError: The file cannot be read.
        RowsError: A line is no valid request.
        ValueError: A line of plain text is no valid goal; the message names it.
    """
    if file != "-":
        text = Path(file).read_text(encoding="utf-8-sig")
        if not text.lstrip().startswith("{"):
            return _plain(text, limit)
    with open_rows(file, ExpandConstraintsRequest, limit) as rows:
        rows.check()
        return list(rows)


def _plain(text: str, limit: int | None) -> Sequence[Row[ExpandConstraintsRequest]]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        goal, _, topic = (part.strip() for part in line.partition("\t"))
        if not goal:
            continue
        request = ExpandConstraintsRequest(abstract_goal=goal, topic=topic)
        if broken := violations(request):
            raise ValueError(f"line {number}: {broken[0].field}: {broken[0].description}")
        found.append(Row(number, request))
    return found[:limit]


class Draft(NamedTuple):
    """A task that was made."""

    id: str
    """Its id: of the goal's line, the draw and the number of constraints."""
    task: ExpandedTask
    """The task."""
    model: str
    """The model that wrote it."""


@dataclass(frozen=True)
class Expansion:
    """The expansion of a file of goals."""

    answers: Mapping[str, ExpandConstraintsResponse]
    """The answers, by the id that their tasks begin with."""
    drafts: Sequence[Draft]
    """The tasks."""
    repeated: Mapping[str, str]
    """The id of the earlier task that a task nearly repeats, by its own."""
    unchecked: str
    """Why only equal words count as duplicates for some tasks. Empty: all were embedded and compared."""
    uncompared: frozenset[str]
    """The ids of the tasks that were compared by their words only."""


def spread(
    rows: Sequence[Row[ExpandConstraintsRequest]], count: int, model: str, constraints: int | None
) -> Mapping[str, ExpandConstraintsRequest]:
    """The requests for ``count`` draws of each goal, by the prefix of the ids of their tasks."""
    asked = {}
    for line, request in rows:
        for index in range(count):
            one = ExpandConstraintsRequest()
            one.CopyFrom(request)
            one.options.model = model or one.options.model
            one.options.repeat_index += index
            one.constraint_count = constraints or one.constraint_count
            asked[f"{line}/{index}"] = one
    return asked


async def expand_goals(
    channel: grpc.aio.Channel,
    asked: Mapping[str, ExpandConstraintsRequest],
    near: float,
    concurrency: int,
    timeout: float,
) -> Expansion:
    """Makes the calls.

    Args:
        channel: A channel to AuthoringService and EmbeddingService.
        asked: The requests, by the id that their tasks begin with.
        near: The cosine from which goals repeat each other.
        concurrency: The maximum number of concurrent calls.
        timeout: The timeout of one call, in seconds.
    """
    author = AuthoringServiceStub(channel)
    answers = await call_each(
        asked.values(),
        lambda request: author.ExpandConstraints(request, timeout=timeout),
        lambda why: ExpandConstraintsResponse(failure=why),
        concurrency,
    )
    by_name = dict(zip(asked, answers, strict=True))
    drafts = [
        Draft(f"{name}/{number}", task, _model(asked[name], answer))
        for name, answer in by_name.items()
        for number, task in enumerate(answer.tasks, start=1)
    ]
    return await _find_repeated(channel, by_name, drafts, near)


async def _find_repeated(
    channel: grpc.aio.Channel,
    answers: Mapping[str, ExpandConstraintsResponse],
    drafts: Sequence[Draft],
    near: float,
) -> Expansion:
    """Finds tasks that repeat an earlier one; those made of one goal step by step are meant to be alike."""
    by_number = defaultdict(list)
    for draft in drafts:
        by_number[len(draft.task.task.constraints)].append(draft)
    repeated: dict[str, str] = {}
    unchecked = ""
    uncompared: set[str] = set()
    for alike in by_number.values():
        found = await find_duplicates(channel, [one.task.task.goal for one in alike], near)
        unchecked = unchecked or found.unchecked
        uncompared.update(alike[index].id for index in found.uncompared)
        for one, earlier in zip(alike, found.earlier, strict=True):
            if earlier is not None:
                repeated[one.id] = alike[earlier].id
    return Expansion(answers, drafts, repeated, unchecked, frozenset(uncompared))


def _model(request: ExpandConstraintsRequest, answer: ExpandConstraintsResponse) -> str:
    completions = answer.provenance.completions
    return completions[-1].answered_model if completions else request.options.model
