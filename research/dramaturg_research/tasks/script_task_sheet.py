"""The review sheet of expanded tasks, and the reviewed tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.generation.v1.authoring_datasets_pb2 import ExpandedTask
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest
from dramaturg.authoring import EDITED
from dramaturg.judge.quotes import names_phrase
from dramaturg.service.validation import violations
from dramaturg_research.completed_sheets import kept_rows, status_problems

MOST = 3
"""The most constraints of a task (ABSEval, section 2)."""
SEPARATOR = "|"
"""The separator of edited constraints."""
EDITED_COLUMNS = ("edited_goal", "edited_constraints")
"""The columns of people's edits."""
COLUMNS = (
    "id",
    "topic",
    "abstract_goal",
    *(f"constraint_{number}" for number in range(1, MOST + 1)),
    "goal",
    "not_in_goal",
    "near_duplicate_of",
    "compared_by",
    "model",
    "status",
    *EDITED_COLUMNS,
)
"""The columns. Those after "model" are for people; docs/research/test-sets.md says what goes where."""


@dataclass
class ReviewedTasks:
    """What a sheet holds."""

    requests: list[WriteScriptRequest] = field(default_factory=list)
    """The tasks that were accepted or edited."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Rows by status."""
    unworded: list[str] = field(default_factory=list)
    """Tasks kept with a constraint that their goal does not state, in words."""
    problems: list[str] = field(default_factory=list)
    """The problems, each with its line."""


def sheet_row(name: str, expanded: ExpandedTask, repeated: str, compared: str, model: str) -> dict[str, str]:
    """A task's row, with the columns for people left empty.

    Args:
        name: The task's id.
        expanded: The task.
        repeated: The id of the task that it nearly repeats. Empty: none.
        compared: How it was compared with earlier ones: "meaning" or "words".
        model: The model that wrote it.
    """
    task = expanded.task
    missing = [task.constraints[index] for index in expanded.unworded_constraint_indices]
    return {
        "id": name,
        "topic": task.topic,
        "abstract_goal": task.abstract_goal,
        **{f"constraint_{number}": text for number, text in enumerate(task.constraints, start=1)},
        "goal": task.goal,
        "not_in_goal": f" {SEPARATOR} ".join(missing),
        "near_duplicate_of": repeated,
        "compared_by": compared,
        "model": model,
    }


def read_review(rows: Sequence[tuple[int, Mapping[str, str]]], *, unreviewed: bool) -> ReviewedTasks:
    """Reads a sheet.

    Args:
        rows: The rows of the sheet, each with the number of its line.
        unreviewed: Whether tasks without a status are kept where their goal states all their constraints.
    """
    found = ReviewedTasks()
    seen: set[str] = set()
    for line, row, status in kept_rows(rows, found.statuses, unreviewed=unreviewed):
        request = WriteScriptRequest(task=_task(row, edited=status == EDITED))
        task = request.task
        problems = list(status_problems(row, status, EDITED_COLUMNS)) if status else []
        if task.id in seen:
            problems.append(f"id: {task.id!r} is repeated")
        seen.add(task.id)
        problems += [f"{one.field}: {one.description}" for one in violations(request)]
        missing = [one for one in task.constraints if not names_phrase(task.goal, one)]
        if problems:
            found.problems += [f"line {line}: {problem}" for problem in problems]
        elif status or not missing:
            found.unworded += [f"line {line}: the goal does not say {one!r}" for one in missing]
            found.requests.append(request)
    return found


def _task(row: Mapping[str, str], *, edited: bool) -> Task:
    constraints = [row.get(f"constraint_{number}", "") for number in range(1, MOST + 1)]
    goal = row.get("goal", "")
    if edited:
        goal = row.get("edited_goal") or goal
        if changed := row.get("edited_constraints"):
            constraints = changed.split(SEPARATOR)
    return Task(
        id=row.get("id", ""),
        goal=goal,
        constraints=[text for one in constraints if (text := one.strip())],
        topic=row.get("topic", ""),
        abstract_goal=row.get("abstract_goal", ""),
    )
