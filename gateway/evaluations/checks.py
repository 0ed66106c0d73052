"""Checks that the requests of several evaluations share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.judge.roles import Role
from dramaturg.service.errors import Violation


def check_alone(selections: Sequence[JudgeSelection], roles: Sequence[Role]) -> Iterator[Violation]:
    """Finds second judges of roles that take one judge.

    Args:
        selections: The request's ``judges``.
        roles: The roles that take no panel.
    """
    seen: set[str] = set()
    names = {role.name for role in roles}
    for index, selection in enumerate(selections):
        if selection.role in names and selection.role in seen:
            yield Violation(f"judges[{index}]", f"is a second {selection.role}: that role takes no panel")
        seen.add(selection.role)


def check_no_context(task: Task) -> Iterator[Violation]:
    """Finds documents and instructions in the task of an evaluation whose judges get none."""
    for name in ("context", "instructions"):
        if getattr(task, name):
            yield Violation(f"task.{name}", "must be empty: only evaluations of texts take it")
