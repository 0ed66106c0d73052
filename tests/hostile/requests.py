"""Valid requests of every method, and copies of them with one hostile field, made from the descriptors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dramaturg.service.validation import limits_of, text_rules
from tests.hostile.values import MANY, Value, values

DEPTH = 4
"""The levels of messages whose fields are changed."""
TIMES = ("google.protobuf.Duration", "google.protobuf.Timestamp")
_SAMPLES = ("a", "goal", "A1", "00000000-0000-4000-8000-000000000000", "critic", "1")


class Mutation(NamedTuple):
    """A request with one hostile field."""

    field: str
    """The path of the field or of its element, as violations name it; of a map, that of the field."""
    label: str
    request: Any
    allowed: bool | None
    """Whether the limits of the field allow the value; None: they do not decide."""


def filled(descriptor: Descriptor, given: Mapping[str, Any] | None = None) -> Any:
    """A message with the values of required fields, and those that are given by the field's name."""
    message: Any = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        limits = limits_of(field)
        if given and field.name in given:
            _put(message, field, given[field.name])
        elif limits.required or limits.min_items:
            for number in range(max(1, limits.min_items) if field.is_repeated else 1):
                _put(message, field, _value(field, number))
    return message


def _value(field: FieldDescriptor, number: int) -> Any:
    limits = limits_of(field)
    if field.message_type is not None:
        inner = filled(field.message_type)
        if "id" in inner.DESCRIPTOR.fields_by_name:
            inner.id = f"{inner.id}{number}"
        return inner
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"a"
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return next(_texts(field, [number]))
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    least = limits.minimum if limits.HasField("minimum") else 1
    is_float = field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
    return least if is_float else int(least)


def _texts(field: FieldDescriptor, numbers: Iterable[int]) -> Iterator[str]:
    """Different texts that a field allows, one for each number."""
    rules = tuple(text_rules(field, limits_of(field), 1 << 30))
    for number in numbers:
        samples = chain((f"{sample}{number or ''}" for sample in _SAMPLES), [f"{number:064x}"])
        yield next(text for text in samples if not any(rule(text) for rule in rules))


def _put(message: Any, field: FieldDescriptor, value: Any) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(message, field.name).update({"a": "a"} if not isinstance(value, dict) else value)
    elif field.is_repeated:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Message):
                getattr(message, field.name).add().CopyFrom(one)
            else:
                getattr(message, field.name).append(one)
    elif isinstance(value, Message):
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def empty(descriptor: Descriptor) -> Any:
    """A message without a value."""
    return GetMessageClass(descriptor)()


def mutations(
    request: Any, depth: int = DEPTH, *, one_of: int = 1, element: Callable[[Descriptor], Any] = filled
) -> Iterator[Mutation]:
    """Copies of a valid request, each with one hostile field.

    Args:
        request: The request.
        depth: The levels of messages whose fields are changed.
        one_of: Makes one of this number of copies.
        element: Makes the messages of a list.
    """
    every = (
        (path, limited, change)
        for path, limited, field in _fields(cast("Descriptor", request.DESCRIPTOR), depth)
        for change in _changes(field, element)
    )
    for path, limited, change in islice(every, None, None, one_of):
        copy, inside, named = _inside(request, path)
        change.apply(inside, path[-1])
        place = ".".join([*named, path[-1]]) + "[0]" * change.in_element
        yield Mutation(place, change.label, copy, change.allowed if limited else None)


def texts(
    request: Any, write: Callable[[str, FieldDescriptor], Iterable[str]], depth: int = DEPTH
) -> Iterator[tuple[str, Any]]:
    """Copies of a request, each with one field that holds a given text, and its path.

    Args:
        request: The request.
        write: Returns the texts of a field, by its path.
        depth: The levels of messages whose fields are written.
    """
    for path, _, field in _fields(cast("Descriptor", request.DESCRIPTOR), depth):
        named = ".".join(path)
        for text in write(named, field):
            copy, inside, _ = _inside(request, path)
            change: Callable[[Any, str], object]
            if field.message_type is not None:
                change = partial(_put_entry, text, text)
            else:
                value = text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
                change = partial(_append if field.is_repeated else _set, value)
            change(inside, path[-1])
            yield named, copy


def holds_text(field: FieldDescriptor) -> bool:
    """Whether a field holds texts: one, a list, bytes, or a map of texts."""
    inner = field.message_type
    if inner is None:
        return bool(field.cpp_type == FieldDescriptor.CPPTYPE_STRING)
    is_map = inner.GetOptions().map_entry
    return bool(is_map and inner.fields_by_name["value"].cpp_type == FieldDescriptor.CPPTYPE_STRING)


def lists(
    request: Any, count: int, depth: int = DEPTH, *, element: Callable[[Descriptor], Any] = filled
) -> Iterator[tuple[str, Any]]:
    """Copies of a request with so many elements in one list or map, whatever its limit, and its path."""
    for path, _, field in _fields(cast("Descriptor", request.DESCRIPTOR), depth):
        if not field.is_repeated:
            continue
        inner = field.message_type
        if inner is None:
            change: Callable[[Any, str], object] = partial(_extend, count, field)
        elif not inner.GetOptions().map_entry:
            change = partial(_add_messages, count, element(inner))
        elif inner.fields_by_name["value"].cpp_type == FieldDescriptor.CPPTYPE_STRING:
            change = partial(_fill_map, count)
        else:
            continue
        copy, inside, _ = _inside(request, path)
        change(inside, path[-1])
        yield ".".join(path), copy


def _inside(request: Any, path: tuple[str, ...]) -> tuple[Any, Any, list[str]]:
    """A copy of a request, its part with the last field of a path, and the names of the parts before."""
    copy = type(request)()
    copy.CopyFrom(request)
    inside: Any = copy
    named = []
    for name in path[:-1]:
        part = getattr(inside, name)
        if inside.DESCRIPTOR.fields_by_name[name].is_repeated:
            inside = part[0] if len(part) else part.add()
            named.append(f"{name}[0]")
        else:
            part.SetInParent()
            inside = part
            named.append(name)
    return copy, inside, named


def _fields(
    message: Descriptor, depth: int, limited: bool = True
) -> Iterator[tuple[tuple[str, ...], bool, FieldDescriptor]]:
    """The fields at any depth, each with its path and whether its limits are enforced."""
    for field in message.fields:
        yield (field.name,), limited, field
        inner = field.message_type
        if inner is not None and depth > 1 and not inner.GetOptions().map_entry:
            enforced = limited and not limits_of(field).contents_unlimited
            for path, found, field_inside in _fields(inner, depth - 1, enforced):
                yield (field.name, *path), found, field_inside


class _Change(NamedTuple):
    label: str
    allowed: bool | None
    apply: Callable[[Any, str], object]
    in_element: bool = False
    """Whether it changes the first element of a list."""


def _changes(field: FieldDescriptor, element: Callable[[Descriptor], Any]) -> Iterator[_Change]:
    limits = limits_of(field)
    inner = field.message_type
    most = limits.max_items
    if inner is not None and inner.GetOptions().map_entry:
        value = inner.fields_by_name["value"]
        if value.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            for count, allowed in _counts(most):
                yield _Change(f"{count} entries", allowed, partial(_fill_map, count))
            for one in values(value, limits):
                yield _Change(f"a value of {one.label}", one.allowed, partial(_put_entry, "a", one.value))
                yield _Change(f"a key of {one.label}", one.allowed, partial(_put_entry, one.value, "a"))
    elif inner is not None:
        if field.is_repeated:
            for count, allowed in _counts(most):
                yield _Change(f"{count} messages", allowed, partial(_add_messages, count, element(inner)))
        else:
            if inner.full_name in TIMES:
                yield _Change("beyond the range of its type", False, _put_late)
            yield _Change("an empty message", None, lambda message, name: getattr(message, name).Clear())
    else:
        for one in values(field, limits):
            yield _change_of(field, one)
        if field.is_repeated:
            for count, allowed in _counts(most):
                yield _Change(f"{count} elements", allowed, partial(_extend, count, field))


def _counts(most: int) -> Iterator[tuple[int, bool | None]]:
    if most:
        yield most, True
        yield most + 1, False
    else:
        yield MANY, None


def _change_of(field: FieldDescriptor, one: Value) -> _Change:
    if field.is_repeated:
        return _Change(one.label, one.allowed, partial(_append, one.value), in_element=True)
    return _Change(one.label, one.allowed, partial(_set, one.value))


def _put_late(message: Any, name: str) -> None:
    getattr(message, name).seconds = 2**62


def _fill_map(count: int, message: Any, name: str) -> None:
    getattr(message, name).clear()
    getattr(message, name).update({str(number): "x" for number in range(count)})


def _put_entry(key: Any, value: Any, message: Any, name: str) -> None:
    getattr(message, name)[key] = value


def _add_messages(count: int, element: Any, message: Any, name: str) -> None:
    elements = getattr(message, name)
    del elements[:]
    elements.extend([element] * count)
    if getattr(element, "id", ""):
        for number, added in enumerate(elements):
            added.id = f"{element.id}{number}"


def _extend(count: int, field: FieldDescriptor, message: Any, name: str) -> None:
    del getattr(message, name)[:]
    is_text = field.type == FieldDescriptor.TYPE_STRING
    elements = _texts(field, range(count)) if is_text else [_value(field, 0)] * count
    getattr(message, name).extend(elements)


def _append(value: Any, message: Any, name: str) -> None:
    del getattr(message, name)[:]
    getattr(message, name).append(value)


def _set(value: Any, message: Any, name: str) -> None:
    setattr(message, name, value)
