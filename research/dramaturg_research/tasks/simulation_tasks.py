"""The review sheet of simulation tasks, the requests that write them, and the reviewed tasks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dramaturg.api.common.v1.dialogue_pb2 import SimulationKind, SimulationTask
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.evaluation.v1.dialogues_pb2 import SimulateDialogueRequest
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import (
    WriteSimulationTaskRequest,
)
from dramaturg.authoring import EDITED
from dramaturg.kinds.dialogues import KIND_NAMES
from dramaturg.service.validation import violations
from dramaturg_research.completed_sheets import kept_rows, status_problems

EDITABLE = ("name", "description", "request_type")
"""The editable members, each with a column of its own."""
EDITED_COLUMNS = tuple(f"edited_{name}" for name in EDITABLE)
COLUMNS = ("id", "kind", *EDITABLE, "near_duplicate_of", "compared_by", "model", "status", *EDITED_COLUMNS)
"""The columns. Those after "model" are for people; docs/research/dialogues.md says what goes where."""

_KINDS = {name: number for number, name in KIND_NAMES.items()}


@dataclass
class ReviewedTasks:
    """What a sheet holds."""

    requests: list[SimulateDialogueRequest] = field(default_factory=list)
    """The tasks that were accepted or edited, as rows of "simulate"."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Rows by status."""
    problems: list[str] = field(default_factory=list)
    """The problems, each with its line."""


def sheet_row(task: SimulationTask, repeated: str, compared: str, model: str) -> dict[str, str]:
    """A task's row, with the columns for people left empty.

    Args:
        task: The task.
        repeated: The id of the task that it nearly repeats. Empty: none.
        compared: How it was compared with earlier ones: "meaning" or "words".
        model: The model that wrote it.
    """
    texts = {name: str(getattr(task, name)) for name in ("id", *EDITABLE)}
    return {
        **texts,
        "kind": KIND_NAMES[task.kind],
        "near_duplicate_of": repeated,
        "compared_by": compared,
        "model": model,
    }


def same_name(tasks: Sequence[SimulationTask], place: int) -> int | None:
    """The first earlier task whose name differs in case and spaces at most, by index. None: there is none."""
    names = [" ".join(task.name.casefold().split()) for task in tasks[: place + 1]]
    first = names.index(names[place])
    return first if names[place] and first < place else None


def task_row(task: SimulationTask, **tags: str) -> SimulateDialogueRequest:
    """A written task as a row of "simulate", tagged with its kind and that it was written."""
    return SimulateDialogueRequest(
        task=task, tags={"kind": KIND_NAMES[task.kind], "origin": "written", **tags}
    )


def read_review(rows: Sequence[tuple[int, Mapping[str, str]]]) -> ReviewedTasks:
    """Reads a sheet. Columns without an edit keep their written value.

    Args:
        rows: The rows of the sheet, each with the number of its line.
    """
    found = ReviewedTasks()
    seen: set[str] = set()
    for line, row, status in kept_rows(rows, found.statuses):
        problems = list(_problems(row, status, seen))
        if not problems:
            request = task_row(_task(row, edited=status == EDITED), review=status)
            problems = [f"{one.field}: {one.description}" for one in violations(request)]
        if problems:
            found.problems += [f"line {line}: {problem}" for problem in problems]
        else:
            found.requests.append(request)
    return found


def _problems(row: Mapping[str, str], status: str, seen: set[str]) -> Iterator[str]:
    yield from status_problems(row, status, EDITED_COLUMNS)
    if (kind := row.get("kind", "").casefold()) not in _KINDS:
        yield f"kind: is {kind!r}, none of {', '.join(_KINDS)}"
    name = row.get("id", "")
    if name and name in seen:
        yield f"id: {name!r} is repeated"
    seen.add(name)


def _task(row: Mapping[str, str], *, edited: bool) -> SimulationTask:
    texts = {name: row.get(name, "") for name in EDITABLE}
    if edited:
        texts = {name: row.get(f"edited_{name}") or text for name, text in texts.items()}
    kind = SimulationKind.ValueType(_KINDS[row["kind"].casefold()])
    return SimulationTask(id=row.get("id", ""), kind=kind, **texts)


def task_requests(
    kind: str, known: Sequence[SimulationTask], count: int, shown: int, seed: int, model: str
) -> Mapping[str, WriteSimulationTaskRequest]:
    """The requests for new tasks of a kind, by the id of the task to be.

    Args:
        kind: "stateless" or "stateful".
        known: Tasks of the kind.
        count: How many requests.
        shown: How many examples each has; fewer where there are fewer tasks.
        seed: The seed of the draws; equal arguments give equal requests.
        model: The model that writes. Empty: the author's default.
    """
    draw = random.Random(f"{seed}/{kind}")  # noqa: S311 - which examples are shown is no secret
    value = next(number for number, name in KIND_NAMES.items() if name == kind)
    return {
        f"new/{kind}/{seed}/{index}": WriteSimulationTaskRequest(
            kind=SimulationKind.ValueType(value),
            examples=draw.sample(known, min(shown, len(known))),
            options=JudgeOptions(model=model, repeat_index=index),
        )
        for index in range(count)
    }
