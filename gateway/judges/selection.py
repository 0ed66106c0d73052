"""Selection of the judges of a request: those that it names, else the configured defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.judge.roles import SYNTHESIZE, Role
from dramaturg.service.auth.caller import current
from dramaturg.service.errors import ServiceError, Violation, invalid_fields
from gateway.judges.registry import Judge, Registry


@dataclass(frozen=True)
class JudgeAssignment:
    """A judge that takes part in an evaluation. Several in one role are a panel."""

    judge: Judge
    model: str
    """The model of the judge. Empty: the judge's default."""
    panel: Judge | None = None
    """The registered panel that it is a member of. None: none."""
    weight: float = 1.0
    """Its weight in that panel."""
    repeat: int = 0
    """The index of the call among the repeats of the judge."""

    @property
    def role(self) -> Role:
        """The role of the judge."""
        return self.judge.role

    def describe(self) -> JudgeSelection:
        """The selection that results in this assignment."""
        return JudgeSelection(role=self.role.name, judge=self.judge.name, model=self.model)


@dataclass(frozen=True)
class Shadow:
    """A judge that assesses the candidates of an evaluation and changes no verdict."""

    assignment: JudgeAssignment
    of: str
    """The name of the judge or panel of the role that it is compared with."""
    counted: bool
    """Whether its usage is part of that of the result."""


def check_selections(
    selections: Sequence[JudgeSelection], wanted: Sequence[Role], roles: Mapping[str, Role]
) -> Iterator[Violation]:
    """Finds violations in a request's selections, apart from the names of judges.

    Args:
        selections: The request's ``judges``.
        wanted: The roles that the request needs.
        roles: All roles.
    """
    seen: set[tuple[str, str, str]] = set()
    names = [role.name for role in wanted]
    synthesizers = 0
    for index, selection in enumerate(selections):
        path = f"judges[{index}]"
        key = (selection.role, selection.judge, selection.model)
        if selection.role not in roles:
            yield Violation(f"{path}.role", f"is {selection.role!r}, none of the roles {', '.join(roles)}")
        elif selection.role not in names:
            yield Violation(
                f"{path}.role",
                f"is {selection.role!r}, which this evaluation does not use; its roles are "
                f"{', '.join(names)}",
            )
        elif key in seen:
            yield Violation(path, "repeats an earlier entry: a panel's judges differ in judge or model")
        elif selection.role == SYNTHESIZE.name:
            synthesizers += 1
            if synthesizers > 1:
                yield Violation(path, "is a second synthesizer; a request has one gold answer")
        seen.add(key)


def select_judges(
    selections: Sequence[JudgeSelection], wanted: Sequence[Role], registry: Registry, model: str
) -> tuple[JudgeAssignment, ...]:
    """Assigns the judges of every role: roles in the order wanted, judges of a panel as selected.

    Args:
        selections: The request's ``judges``, free of violations.
        wanted: The roles that the request needs.
        registry: The registered judges.
        model: The model of judges whose selection names none. Empty: their own defaults.

    Raises:
        ServiceError: INVALID_ARGUMENT, ERROR_REASON_JUDGE_UNKNOWN with every unknown judge; or
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    unknown = [
        (index, selection)
        for index, selection in enumerate(selections)
        if selection.judge and registry.find(selection.role, selection.judge) is None
    ]
    if unknown:
        raise _judge_unknown(unknown, registry)
    assignments: list[JudgeAssignment] = []
    for role in wanted:
        named = [selection for selection in selections if selection.role == role.name]
        if not named:
            assignments += _seats(_default(role, registry), model, registry)
        for selection in named:
            judge = registry.find(role.name, selection.judge) if selection.judge else None
            assignments += _seats(judge or _default(role, registry), selection.model or model, registry)
    return tuple(assignments)


def counted_shadows(shadows: Iterable[Shadow]) -> Sequence[JudgeAssignment]:
    """The assignments of the shadows whose usage is part of that of the result."""
    return [shadow.assignment for shadow in shadows if shadow.counted]


def select_shadows(
    requested: Sequence[JudgeSelection], assignments: Sequence[JudgeAssignment], registry: Registry
) -> tuple[Shadow, ...]:
    """The shadows of an evaluation: those that the request names, then those of its judges and panels.

    A judge that takes part in the evaluation otherwise is not a shadow in it.

    Args:
        requested: The request's ``shadows``.
        assignments: The judges of the evaluation.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or ERROR_REASON_JUDGE_UNKNOWN.
    """
    seats: dict[str, dict[str, None]] = {}
    for one in assignments:
        seats.setdefault(one.role.name, {})[(one.panel or one.judge).name] = None
    if violations := list(_check_shadows(requested, seats)):
        raise invalid_fields(violations)
    named = []
    for index, selection in enumerate(requested):
        judge = registry.find(selection.role, selection.judge)
        if judge is None or judge.entry.panel is not None:
            raise judge_unknown(selection.role, selection.judge, registry, f"shadows[{index}].judge")
        (of,) = seats[selection.role]
        named.append(Shadow(JudgeAssignment(judge, selection.model), of, counted=True))
    busy = {one.judge for one in assignments} | {one.assignment.judge for one in named}
    shadowed = {
        (judge.role.name, judge.name) for one in assignments for judge in (one.judge, one.panel) if judge
    }
    bound = [
        Shadow(JudgeAssignment(judge, table.model), table.of, counted=judge.tenant is not None)
        for role in seats
        for judge in registry.of_role(role)
        if (table := judge.entry.shadow) is not None and (role, table.of) in shadowed and judge not in busy
    ]
    return (*named, *bound)


def _check_shadows(
    requested: Sequence[JudgeSelection], seats: Mapping[str, Mapping[str, None]]
) -> Iterator[Violation]:
    for index, selection in enumerate(requested):
        judges = seats.get(selection.role, {})
        if len(judges) != 1:
            have = ", ".join(judges) or "none"
            yield Violation(
                f"shadows[{index}].role",
                f"is {selection.role!r}, must be a role with one judge or panel here; its judges are {have}",
            )


def _seats(judge: Judge, model: str, registry: Registry) -> Sequence[JudgeAssignment]:
    """The assignment of a judge, or those of the members of a panel."""
    if judge.entry.panel is None:
        return [JudgeAssignment(judge, model)]
    seats = []
    for member in judge.entry.panel.members:
        found = registry.find(judge.role.name, member.judge)
        if found is None or found.entry.panel is not None:
            field = f"the panel {judge.name!r}: a member"
            raise judge_unknown(judge.role.name, member.judge, registry, field)
        seats.append(JudgeAssignment(found, member.model or model, judge, member.weight))
    return seats


def _default(role: Role, registry: Registry) -> Judge:
    judge = registry.default(role.name)
    if judge is None:
        names = [judge.name for judge in registry.of_role(role.name)]
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            error_reason_pb2.ERROR_REASON_ROLE_UNBOUND,
            f"no judge serves the role {role.name!r}: "
            + (f"name one of {', '.join(names)}, or configure a default" if names else "none is registered"),
            metadata={"role": role.name},
        )
    return judge


def judge_unknown(role: str, name: str, registry: Registry, field: str) -> ServiceError:
    """The error of a request with a judge that is not registered for the role.

    Args:
        role: The role.
        name: The unknown name.
        registry: The registered judges.
        field: The path of the field that holds the name.
    """
    fault = registry.unusable.get((current().tenant, role, name))
    why = _registered(role, registry) if fault is None else "its registration cannot be used; see ListJudges"
    violation = Violation(field, f"is {name!r}; {why}")
    return ServiceError(
        grpc.StatusCode.INVALID_ARGUMENT,
        error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN,
        f"{field} {violation.description}",
        metadata={"role": role, "judge": name},
        violations=[violation],
    )


def _judge_unknown(unknown: Sequence[tuple[int, JudgeSelection]], registry: Registry) -> ServiceError:
    errors = [
        judge_unknown(selection.role, selection.judge, registry, f"judges[{index}].judge")
        for index, selection in unknown
    ]
    first = errors[0]
    return ServiceError(
        first.code,
        first.reason,
        first.message,
        metadata=first.metadata,
        violations=[violation for error in errors for violation in error.violations],
    )


def _registered(role: str, registry: Registry) -> str:
    names = [judge.name for judge in registry.of_role(role)]
    return (
        f"the judges of {role!r} are {', '.join(names)}" if names else f"no judge of {role!r} is registered"
    )
