"""Checks that the requests of several evaluations share, and that of rubrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.judge.criteria import scale_problem
from dramaturg.judge.roles import Role
from dramaturg.judge.rules import rule_problem
from dramaturg.judge.steps import is_blank
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


def check_no_context(task: Task) -> Iterator[Violation]:
    """Finds documents and instructions in the task of an evaluation whose judges get none."""
    for name in ("context", "instructions"):
        if getattr(task, name):
            yield Violation(f"task.{name}", "must be empty: only evaluations of texts take it")


def check_rubric(criteria: Sequence[RubricCriterion], field: str = "criteria") -> Iterator[Violation]:
    """Finds invalid and repeated criteria.

    Args:
        criteria: The rubric.
        field: The path of the rubric in its request.
    """
    yield from check_distinct(field, [one.id for one in criteria])
    for index, one in enumerate(criteria):
        path = f"{field}[{index}]"
        if one.each and one.HasField("scale"):
            yield Violation(f"{path}.each", "must be absent: a criterion with a scale judges the whole")
        if one.HasField("rule"):
            if problem := rule_problem(one.rule):
                yield Violation(f"{path}.rule", problem)
            if one.HasField("scale"):
                yield Violation(f"{path}.scale", "must be absent: a criterion with a rule passes or fails")
            continue
        if not one.HasField("scale"):
            if is_blank(one.passes):
                yield Violation(f"{path}.passes", "must not be blank unless the criterion has a scale")
            continue
        for name in ("passes", "fails"):
            if getattr(one, name):
                yield Violation(f"{path}.{name}", "must be empty: the criterion has a scale")
        if is_blank(one.description) and not one.scale.anchors:
            yield Violation(f"{path}.description", "must not be blank: the scale has no anchors")
        if problem := scale_problem(one.scale):
            yield Violation(f"{path}.scale", problem)
