"""Enforces the limits that the contracts declare on their fields (``common/v1/limits.proto``).

The limits are compiled into checks of each type of message. Only the fields are visited that can break a
limit. No message of 1,000 bytes holds a text of 20,000 characters, so there is a check for each power of two
of bytes.
"""

from __future__ import annotations

import json
import math
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, cast

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dramaturg.api.common.v1 import limits_pb2
from dramaturg.api.common.v1.limits_pb2 import FieldLimits
from dramaturg.service.errors import Fault, Violation, invalid_fields

REQUIRED = Fault("is required", "REQUIRED")

Rule = Callable[[Any], Fault | None]
"""Returns the fault of one value, or ``None``."""


def limits_of(field: FieldDescriptor) -> FieldLimits:
    """The limits of a field; empty where it has none."""
    return field.GetOptions().Extensions[limits_pb2.limits]


def value_rules(field: FieldDescriptor, limits: FieldLimits, size_bound: int) -> Iterator[Rule]:
    """The rules of each value of a field.

    Args:
        field: The field.
        limits: Its own, or in a map those of the map.
        size_bound: Messages have fewer bytes; what none of them can break is left out.
    """
    yield from text_rules(field, limits, size_bound)
    yield from _number_rules(limits)
    if field.enum_type is not None:
        yield _known_value(field.enum_type)


def text_rules(field: FieldDescriptor, limits: FieldLimits, size_bound: int) -> Iterator[Rule]:
    """The rules of the values of a field of text or bytes (see ``value_rules``)."""
    if field.cpp_type != FieldDescriptor.CPPTYPE_STRING:  # which bytes fields have too
        return
    unit = "bytes" if field.type == FieldDescriptor.TYPE_BYTES else "characters"
    most = limits.max_length
    if 0 < most < size_bound:
        yield (
            lambda value: (
                Fault(f"has {len(value)} {unit}; at most {most} are allowed", "TOO_LONG")
                if len(value) > most
                else None
            )
        )
    if limits.pattern:
        # RE2 classes like \\w are ASCII.
        matches, pattern = re.compile(limits.pattern, re.ASCII).fullmatch, limits.pattern
        yield (
            lambda value: (
                Fault(f"does not match {pattern}", "PATTERN_MISMATCH")
                if value and not matches(value)
                else None
            )
        )


def required_rules(field: FieldDescriptor) -> Iterator[Rule]:
    """Further rules of the value of a required field that is present."""
    if field.type == FieldDescriptor.TYPE_STRING:
        yield _required_text
    elif field.type == FieldDescriptor.TYPE_BYTES or not field.has_presence:
        yield lambda value: None if value else REQUIRED


_LATEST = 253_402_300_799
"""The last second of the year 9999, which is the last of a ``Timestamp``; a ``Duration`` may be longer."""


def time_fault(time: Any) -> Fault | None:
    """The fault of a ``google.protobuf.Duration`` or ``Timestamp`` that is out of the range of its type.

    Neither JSON nor most languages can state such a value.
    """
    if 0 <= time.nanos < 10**9 and 0 <= time.seconds <= _LATEST:  # of every answer: the rest is slow
        return None
    try:
        time.ToJsonString()
    except ValueError:
        name = time.DESCRIPTOR.name
        return Fault(f"is {time.seconds} s and {time.nanos} ns; it is no valid {name}", "OUT_OF_RANGE")
    return None


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


def can_break(field: FieldDescriptor, size_bound: int) -> bool:
    """Whether a field can break its limits in a message of fewer than ``size_bound`` bytes."""
    limits = limits_of(field)
    return (
        field.enum_type is not None
        or limits.required
        or limits.min_items > 0
        or 0 < limits.max_items < size_bound
        or 0 < limits.max_length < size_bound
        or bool(limits.pattern)
        or limits.HasField("minimum")
        or limits.HasField("maximum")
    )


def _required_text(value: str) -> Fault | None:
    if not value:
        return REQUIRED
    return None if value.strip() else Fault("is required; it holds white space only", REQUIRED.reason)


def _number_rules(limits: FieldLimits) -> Iterator[Rule]:
    has_minimum, has_maximum = limits.HasField("minimum"), limits.HasField("maximum")
    if not has_minimum and not has_maximum:
        return
    least = limits.minimum if has_minimum else -math.inf
    most = limits.maximum if has_maximum else math.inf
    bounds = [f"at least {least:.15g}"] * has_minimum + [f"at most {most:.15g}"] * has_maximum
    allowed = " and ".join(bounds)

    def rule(value: float) -> Fault | None:
        if least <= value <= most and math.isfinite(value):
            return None
        return Fault(f"is {value:.15g}; it must be {allowed}", "OUT_OF_RANGE")

    yield rule


def _known_value(enum: EnumDescriptor) -> Rule:
    known, name = frozenset(enum.values_by_number), enum.name
    return lambda value: (
        None if value in known else Fault(f"is {value}, which is no value of {name}", "UNKNOWN_VALUE")
    )


_UNKNOWN_WORD = re.compile(r"Invalid enum value (?P<word>.*) for enum type (?P<enum>[\w.]+)", re.DOTALL)


def unknown_word(message: str) -> Fault | None:
    """What is wrong with a word that is no value of its enum, by a message of protobuf's JSON parser.

    None: the message is about something else.
    """
    found = _UNKNOWN_WORD.search(message)
    if found is None:
        return None
    try:
        enum = descriptor_pool.Default().FindEnumTypeByName(found["enum"].rstrip("."))
    except KeyError:  # the message quotes a value that reads like one
        return None
    words = ", ".join(name for name in enum.values_by_name if not name.endswith("_UNSPECIFIED"))
    return Fault(f"is {_shown(found['word'])}; it must be one of {words}", "UNKNOWN_VALUE")


MAX_VIOLATIONS = 1000
"""The most violations that are found in a request."""
_TIMES = frozenset({"google.protobuf.Duration", "google.protobuf.Timestamp"})

_SHOWN_KEY_LENGTH = 40
Check = Callable[[Any], Sequence[Violation]]
"""Finds the violations in a message, or in what one of its fields holds; their paths are relative to it."""

_known: dict[tuple[Descriptor, int], Check] = {}
_making: set[tuple[Descriptor, int]] = set()
_compiling = threading.RLock()
"""Large messages are checked in threads."""


def message_check(descriptor: Descriptor, size_bound: int) -> Check:
    """Checks messages of a type; compiled at the first use.

    Args:
        descriptor: The type.
        size_bound: The messages are read from fewer bytes. Few values: each is compiled for itself.
    """
    key = descriptor, size_bound
    known = _known.get(key)
    if known is None:
        with _compiling:
            known = _known.get(key) or _compiled(descriptor, size_bound)
    return known


def _compiled(descriptor: Descriptor, size_bound: int) -> Check:
    key = descriptor, size_bound
    if key in _making:  # a type that contains itself: the check is made by the time of its first call
        return lambda message: message_check(descriptor, size_bound)(message)
    if descriptor.full_name in _TIMES:
        _known[key] = _check_time
        return _check_time
    _making.add(key)
    try:
        checks = [_field_check(field, size_bound) for field in descriptor.fields]
    finally:
        _making.remove(key)
    made = _known[key] = _all([check for check in checks if check])
    return made


class _FieldCheck(NamedTuple):
    """How one field is checked. At most one of ``rules``, ``inside`` and ``elements`` is there."""

    name: str
    read: Callable[[Any], Any]
    has_presence: bool
    absent: Sequence[Violation]
    """The violations where it is absent."""
    rules: Sequence[Rule] = ()
    """Of its value."""
    inside: Check | None = None
    """Of the message in it, with paths relative to that."""
    elements: Check | None = None
    """Of the list or map in it."""


def _all(checks: Sequence[_FieldCheck]) -> Check:
    def check_all(message: Message) -> Sequence[Violation]:
        found: Sequence[Violation] = ()
        # One loop, and no function for each field: every request has dozens.
        for name, read, has_presence, absent, rules, inside, elements in checks:
            broken: Sequence[Violation] = ()
            if has_presence and not message.HasField(name):
                broken = absent
            elif inside is not None:
                if inner := inside(read(message)):
                    broken = [Violation(_joined(name, path), text) for path, text in inner]
            elif elements is not None:
                broken = elements(read(message))
            elif rules:
                value = read(message)
                for rule in rules:
                    if (wrong := rule(value)) is not None:
                        broken = (*broken, Violation(name, wrong))
            if broken:
                found = [*found, *broken]
                if len(found) >= MAX_VIOLATIONS:
                    break
        return found

    return check_all


def _check_time(message: Any) -> Sequence[Violation]:
    fault = time_fault(message)
    return (Violation("", fault),) if fault else ()


def _field_check(field: FieldDescriptor, size_bound: int) -> _FieldCheck | None:
    """The check of a field; ``None`` where nothing in it can be wrong."""
    limits, name, read = limits_of(field), field.name, attrgetter(field.name)
    if field.is_repeated:
        check_each = (_entries_check if _is_map(field) else _elements_check)(field, limits, size_bound)
        elements = _count_check(name, limits, size_bound, check_each)
        return elements and _FieldCheck(name, read, False, (), elements=elements)
    inside, rules = None, ()
    if field.message_type is None:
        required = required_rules(field) if limits.required else ()
        rules = (*required, *value_rules(field, limits, size_bound))
    elif not limits.contents_unlimited:
        inside = _inside(field.message_type, size_bound)
    absent = (Violation(name, REQUIRED),) if limits.required and field.has_presence else ()
    if not (inside or rules or absent):
        return None
    return _FieldCheck(name, read, field.has_presence, absent, rules, inside)


def _count_check(name: str, limits: FieldLimits, size_bound: int, check_each: Check | None) -> Check | None:
    fewest = max(limits.min_items, 1) if limits.required else limits.min_items
    # An element takes a byte at least.
    most = limits.max_items if 0 < limits.max_items < size_bound else sys.maxsize
    if not fewest and most == sys.maxsize and check_each is None:
        return None

    def check_count(elements: Any) -> Sequence[Violation]:
        count = len(elements)
        found: Sequence[Violation] = ()
        if count < fewest:
            found = (
                Violation(name, Fault(f"has {count} elements; at least {fewest} must be there", "TOO_FEW")),
            )
        elif count > most:
            found = (Violation(name, Fault(f"has {count} elements; at most {most} are allowed", "TOO_MANY")),)
        return [*found, *check_each(elements)] if count and check_each else found

    return check_count


def _elements_check(field: FieldDescriptor, limits: FieldLimits, size_bound: int) -> Check | None:
    name, bound = field.name, limits.max_items or None
    if field.message_type is None:
        rules = tuple(value_rules(field, limits, size_bound))

        def check_values(values: Sequence[Any]) -> Sequence[Violation]:
            return [
                Violation(f"{name}[{index}]", wrong)
                for index, value in enumerate(islice(values, bound))
                for rule in rules
                if (wrong := rule(value)) is not None
            ]

        return check_values if rules else None
    check_inside = None if limits.contents_unlimited else _inside(field.message_type, size_bound)
    if check_inside is None:
        return None
    is_set = _only_field(field.message_type, size_bound, check_inside)

    def check_messages(messages: Sequence[Message]) -> Sequence[Violation]:
        found: list[Violation] = []
        if is_set and not any(map(is_set, messages)):
            return found
        for index, message in enumerate(islice(messages, bound)):
            if broken := check_inside(message):
                found += [Violation(_joined(f"{name}[{index}]", path), text) for path, text in broken]
                if len(found) >= MAX_VIOLATIONS:
                    break
        return found

    return check_messages


def _only_field(descriptor: Descriptor, size_bound: int, check: Check) -> attrgetter[Any] | None:
    """Reads the only field that is looked at, where messages pass in which it is empty or zero."""
    if any(field.message_type is not None or field.is_repeated for field in descriptor.fields):
        return None
    checked = [field for field in descriptor.fields if _field_check(field, size_bound)]
    if len(checked) != 1:
        return None
    name = checked[0].name
    unset = GetMessageClass(descriptor)(**{name: checked[0].default_value})
    return None if check(unset) else attrgetter(name)


def _entries_check(field: FieldDescriptor, limits: FieldLimits, size_bound: int) -> Check | None:
    entry = field.message_type
    assert entry is not None
    key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
    rules_of_keys = tuple(text_rules(key, limits, size_bound))
    rules_of_values = tuple(value_rules(value, limits, size_bound))
    check_inside = _inside(value.message_type, size_bound) if value.message_type is not None else None
    if not rules_of_keys and not rules_of_values and check_inside is None:
        return None
    name, bound = field.name, limits.max_items or None

    def check_entries(entries: Mapping[Any, Any]) -> Sequence[Violation]:
        found: list[Violation] = []
        for entry_key, entry_value in sorted(islice(entries.items(), bound), key=itemgetter(0)):
            wrong = [
                Fault(f"has a key that {text}", text.reason)
                for rule in rules_of_keys
                if (text := rule(entry_key))
            ]
            wrong += [fault for rule in rules_of_values if (fault := rule(entry_value))]
            found += [Violation(f"{name}[{_shown(entry_key)}]", text) for text in wrong]
            for path, inner in check_inside(entry_value) if check_inside else ():
                found.append(Violation(_joined(f"{name}[{_shown(entry_key)}]", path), inner))
        return found

    return check_entries


def _inside(descriptor: Descriptor, size_bound: int) -> Check | None:
    """The check of messages in a field; ``None`` where there is nothing to check in them, at any depth."""
    seen, waiting = {descriptor.full_name}, [descriptor]
    while waiting:
        kind = waiting.pop()
        if kind.full_name in _TIMES:
            return message_check(descriptor, size_bound)
        for field in kind.fields:
            if can_break(field, size_bound):
                return message_check(descriptor, size_bound)
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                waiting.append(inner)
    return None


def _joined(name: str, path: str) -> str:
    """The path of what is in a field; the field's own where that is a time."""
    return f"{name}.{path}" if path else name


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _shown(key: object) -> str:
    if isinstance(key, str):
        return json.dumps(
            key if len(key) <= _SHOWN_KEY_LENGTH else f"{key[:_SHOWN_KEY_LENGTH]}…", ensure_ascii=False
        )
    return str(key)


__all__ = ["MAX_VIOLATIONS", "unknown_word", "validate", "violations"]


def validate(message: Message, size: int | None = None) -> None:
    """Refuses a message that breaks a limit.

    Checked, at any depth: the members of ``FieldLimits``, that an enum's value is one that this server has,
    and that durations and times are in the range of their types. In a map, ``max_length`` and ``pattern``
    hold for keys and values. Elements beyond ``max_items`` are not checked.

    Args:
        message: The message.
        size: The bytes that it was read from, where that is known: then there is less to look at.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, up to ``MAX_VIOLATIONS``.
    """
    found = violations(message, size)
    if found:
        raise invalid_fields(found)


def violations(message: Message, size: int | None = None) -> Sequence[Violation]:
    """All violations, in the order of the fields, up to ``MAX_VIOLATIONS`` (see ``validate``)."""
    size_bound = sys.maxsize if size is None else 1 << size.bit_length()
    check = message_check(cast("Descriptor", message.DESCRIPTOR), size_bound)
    return check(message)[:MAX_VIOLATIONS]
