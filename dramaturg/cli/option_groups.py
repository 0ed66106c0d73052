"""Options that go together, as one parameter of every command that has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

from dramaturg.cli.platform import fail


def takes_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a command of a function: a parameter that is a dataclass becomes the options of its fields.

    Each field is annotated as a parameter of a command is, and its default is the option's. In its help a
    command's own options come before these. A ``ValueError`` of a dataclass ends the command as wrong usage.
    """
    own: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if is_dataclass(group := parameter.annotation) and isinstance(group, type):
            members = list(_parameters(group))
            groups[parameter.name] = group, [one.name for one in members]
            shared += members
        else:
            own.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(function)
    def command(**given: Any) -> Any:
        for name, (group, members) in groups.items():
            try:
                given[name] = group(**{member: given.pop(member) for member in members})
            except ValueError as error:
                fail(str(error))
        return function(**given)

    parameters = [*own, *shared]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _parameters(group: type) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name], default=default
        )
