"""Checks that the requests of several evaluations share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.judge.roles import Role
from dramaturg.service.errors import Violation


def check_distinct(field: str, values: Sequence[str]) -> Iterator[Violation]:
    """Finds blank and repeated values.

    Args:
        field: The path of the list.
        values: The elements of the list.
    """
    first: dict[str, int] = {}
    for index, value in enumerate(values):
        if not value.strip():
            yield Violation(f"{field}[{index}]", "must not be blank")
        elif value in first:
            yield Violation(f"{field}[{index}]", f"is {value!r}, as is {field}[{first[value]}]")
        first.setdefault(value, index)


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
