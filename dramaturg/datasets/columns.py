"""Maps columns of a table to the fields of a request.

A column is named by the path of a field, such as ``task.goal``, ``candidates.0.text`` or ``tags.level``, in
the contract's spelling or that of protobuf's JSON. A path that ends at a list, a map or a message holds all
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from dramaturg.datasets.errors import DatasetError
from dramaturg.service.errors import Violation

MAX_ELEMENTS = 10_000
"""The highest number of an element that a column may name."""
SHOWN_DEPTH = 3
"""How deep fields are looked for that are like a column that is none."""

TEXTS = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask"})
"""Messages that are strings in protobuf's JSON."""

Path = tuple[str | int, ...]


class Column(NamedTuple):
    """A column and the place in the request that it fills."""

    name: str
    """As the header has it."""
    path: Path
    """The names of fields, the numbers of elements, and the keys of maps, from the request on."""
    field: FieldDescriptor
    """The last field of the path."""
    is_element: bool
    """Whether it holds one element of that field, which is a list or a map."""


Read = Callable[[Any, FieldDescriptor, bool], Any]
"""Turns what a table holds for a field, or for one of its elements, into its value in protobuf's JSON. None:
there is nothing. Raises ValueError where it cannot be."""


def find_columns(names: Sequence[str], message: Descriptor) -> Sequence[Column]:
    """The columns of a header.

    Raises:
        DatasetError: A column is no field of the message, or two set the same.
    """
    columns = [_find(name, message) for name in names]
    taken: dict[Path, str] = {}
    for column in columns:
        if column.path in taken:
            raise DatasetError(
                f'has the columns "{taken[column.path]}" and "{column.name}", which set the same field', 1
            )
        taken[column.path] = column.name
    for column in columns:
        for length in range(1, len(column.path)):
            if whole := taken.get(column.path[:length]):
                raise DatasetError(
                    f'has the column "{column.name}", which sets a part of what "{whole}" sets', 1
                )
    return columns


def assemble(columns: Sequence[Column], cells: Sequence[Any], read: Read) -> dict[str, Any] | Violation:
    """The JSON value of a row without empty values and empty elements of lists.

    Args:
        columns: The columns.
        cells: What the row holds, in their order.
        read: Reads one cell.
    """
    value = _Parts()
    for column, cell in zip(columns, cells, strict=True):
        try:
            found = read(cell, column.field, column.is_element)
        except (ValueError, OverflowError) as error:
            return Violation(column.name, str(error))
        if found is None:
            continue
        place = value
        for step in column.path[:-1]:
            place = place.setdefault(step, _Parts())
        place[column.path[-1]] = found
    settled: dict[str, Any] = _settle(value)
    return settled


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


class _Parts(dict[str | int, Any]):
    """What columns make of a message or list, apart from what one cell holds."""


def _settle(value: Any) -> Any:
    """Puts lists where parts are numbered."""
    if not isinstance(value, _Parts):
        return value
    if value and all(isinstance(key, int) for key in value):
        return [_settle(value[key]) for key in sorted(value)]
    return {key: _settle(part) for key, part in value.items()}


def _find(name: str, message: Descriptor) -> Column:
    path: list[str | int] = []
    steps = name.split(".")
    inside: Descriptor | None = message
    field: FieldDescriptor | None = None
    while steps:
        step = steps.pop(0)
        if field is not None and is_map(field):
            # Keys may have dots.
            return Column(name, (*path, ".".join([step, *steps])), _value_of(field), False)
        if field is not None and field.is_repeated:
            if not step.isdecimal() or int(step) > MAX_ELEMENTS:
                fault = f"in which {step!r} is no number from 0 to {MAX_ELEMENTS}"
                raise DatasetError(f'has the column "{name}", {fault}', 1)
            path.append(int(step))
            if not steps:
                return Column(name, tuple(path), field, True)
            inside, field = field.message_type, None
            continue
        if field is not None:
            inside = field.message_type
        field = _field(inside, step) if inside is not None else None
        if field is None:
            raise _unknown(name, message)
        path.append(field.name)
    assert field is not None
    return Column(name, tuple(path), field, False)


def _value_of(field: FieldDescriptor) -> FieldDescriptor:
    assert field.message_type is not None
    return field.message_type.fields_by_name["value"]


def _field(message: Descriptor, name: str) -> FieldDescriptor | None:
    return message.fields_by_name.get(name) or message.fields_by_camelcase_name.get(name)


def _unknown(name: str, message: Descriptor) -> DatasetError:
    shown = name[:200]
    near = get_close_matches(shown, list(_paths(message, SHOWN_DEPTH)), n=3, cutoff=0.6)
    known = f"the nearest are {', '.join(near)}" if near else f"there are {', '.join(message.fields_by_name)}"
    hint = "; columns are separated by commas" if ";" in name or "\t" in name else ""
    return DatasetError(f'has the column "{shown}", which is no field of {message.name}; {known}{hint}', 1)


def _paths(message: Descriptor, depth: int) -> Iterator[str]:
    for field in message.fields:
        yield field.name
        if is_map(field) or field.message_type is None or depth == 1:
            continue
        start = f"{field.name}.0" if field.is_repeated else field.name
        yield from (f"{start}.{rest}" for rest in _paths(field.message_type, depth - 1))
