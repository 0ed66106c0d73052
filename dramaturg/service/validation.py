"""Enforces the limits that the contracts declare on their fields (``common/v1/limits.proto``).

Each message type is compiled once into a plan that visits only the fields that can break a limit.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from dramaturg.api.common.v1 import limits_pb2
from dramaturg.api.common.v1.limits_pb2 import FieldLimits
from dramaturg.service.errors import Violation, invalid_fields

MAX_VIOLATIONS = 1000
"""After so many violations a request is not looked at any further."""

_SHOWN_KEY_LENGTH = 40
Rule = Callable[[Any], str | None]
"""Says what is wrong with one value, or ``None``."""
Check = Callable[[Any], Sequence[Violation]]
"""Finds the violations in a message; their paths are relative to it."""


def validate(message: Message) -> None:
    """Refuses a message that breaks a limit.

    Checked, at any depth: the members of ``FieldLimits``, and that an enum's value is one that this server
    knows. In a map, ``max_length`` and ``pattern`` hold for keys and values. Elements beyond ``max_items``
    are not looked at.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, up to ``MAX_VIOLATIONS``.
    """
    found = violations(message)
    if found:
        raise invalid_fields(found)


def violations(message: Message) -> Sequence[Violation]:
    """All violations in a message, in the order of its fields, up to ``MAX_VIOLATIONS``."""
    return _plan(cast("Descriptor", message.DESCRIPTOR))(message)


class _Plan:
    """The checks of one message type, compiled at the first use: types may contain themselves."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._checks: tuple[Check, ...] | None = None

    def __call__(self, message: Message) -> Sequence[Violation]:
        if self._checks is None:
            self._checks = tuple(check for field in self._descriptor.fields for check in _checks(field))
        found: Sequence[Violation] = ()
        for check in self._checks:
            if broken := check(message):
                found = [*found, *broken]
                if len(found) >= MAX_VIOLATIONS:
                    return found[:MAX_VIOLATIONS]
        return found


_plans: dict[str, _Plan] = {}


def _plan(descriptor: Descriptor) -> _Plan:
    known = _plans.get(descriptor.full_name)
    return known or _plans.setdefault(descriptor.full_name, _Plan(descriptor))


def _checks(field: FieldDescriptor) -> Iterator[Check]:
    if _is_map(field):
        yield from _map_checks(field)
    elif field.is_repeated:
        yield from _repeated_checks(field)
    else:
        yield from _singular_checks(field)


def _singular_checks(field: FieldDescriptor) -> Iterator[Check]:
    name, read, limits = field.name, attrgetter(field.name), _limits(field)
    if limits.required:
        yield _required(field)
    if field.message_type is not None:
        if _has_limits(field.message_type):
            plan = _plan(field.message_type)

            def check_inside(message: Message) -> Sequence[Violation]:
                if not message.HasField(name):
                    return ()
                return [Violation(f"{name}.{path}", text) for path, text in plan(read(message))]

            yield check_inside
        return
    for rule in _rules(field, limits):
        yield _singular_check(field, rule)


def _singular_check(field: FieldDescriptor, rule: Rule) -> Check:
    name, read, has_presence = field.name, attrgetter(field.name), field.has_presence

    def check(message: Message) -> Sequence[Violation]:
        if has_presence and not message.HasField(name):
            return ()
        wrong = rule(read(message))
        return () if wrong is None else (Violation(name, wrong),)

    return check


def _required(field: FieldDescriptor) -> Check:
    name, read, has_presence = field.name, attrgetter(field.name), field.has_presence
    is_text = field.type == FieldDescriptor.TYPE_STRING

    def check(message: Message) -> Sequence[Violation]:
        if has_presence and not message.HasField(name):
            return (Violation(name, "is required"),)
        value = read(message)
        if is_text and value and not value.strip():
            return (Violation(name, "is required; it holds white space only"),)
        is_missing = not value and (is_text or not has_presence or isinstance(value, bytes))
        return (Violation(name, "is required"),) if is_missing else ()

    return check


def _repeated_checks(field: FieldDescriptor) -> Iterator[Check]:
    limits = _limits(field)
    yield from _count_checks(field, limits)
    name, read = field.name, attrgetter(field.name)
    bound = limits.max_items or None
    if field.message_type is None:
        rules = tuple(_rules(field, limits))
        if rules:

            def check_each(message: Message) -> Sequence[Violation]:
                return [
                    Violation(f"{name}[{index}]", wrong)
                    for index, value in enumerate(read(message)[:bound])
                    for rule in rules
                    if (wrong := rule(value)) is not None
                ]

            yield check_each
    elif _has_limits(field.message_type):
        plan = _plan(field.message_type)

        def check_inside_each(message: Message) -> Sequence[Violation]:
            found: list[Violation] = []
            for index, element in enumerate(read(message)[:bound]):
                if broken := plan(element):
                    found += [Violation(f"{name}[{index}].{path}", text) for path, text in broken]
                    if len(found) >= MAX_VIOLATIONS:
                        break
            return found

        yield check_inside_each


def _map_checks(field: FieldDescriptor) -> Iterator[Check]:
    limits = _limits(field)
    yield from _count_checks(field, limits)
    entry = field.message_type
    assert entry is not None
    key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
    key_rules = tuple(_text_rules(key, limits))
    value_rules = tuple(_rules(value, limits))
    plan = (
        _plan(value.message_type)
        if value.message_type is not None and _has_limits(value.message_type)
        else None
    )
    if not key_rules and not value_rules and plan is None:
        return
    name, read, bound = field.name, attrgetter(field.name), limits.max_items or None

    def check_entries(message: Message) -> Sequence[Violation]:
        found: list[Violation] = []
        for entry_key, entry_value in sorted(islice(read(message).items(), bound), key=itemgetter(0)):
            wrong = [f"has a key that {text}" for rule in key_rules if (text := rule(entry_key)) is not None]
            wrong += [text for rule in value_rules if (text := rule(entry_value)) is not None]
            found += [Violation(f"{name}[{_shown(entry_key)}]", text) for text in wrong]
            for path, text in plan(entry_value) if plan else ():
                found.append(Violation(f"{name}[{_shown(entry_key)}].{path}", text))
        return found

    yield check_entries


def _count_checks(field: FieldDescriptor, limits: FieldLimits) -> Iterator[Check]:
    name, read, fewest, most = field.name, attrgetter(field.name), limits.min_items, limits.max_items
    fewest = max(fewest, 1) if limits.required else fewest
    if not fewest and not most:
        return

    def check_count(message: Message) -> Sequence[Violation]:
        count = len(read(message))
        if count < fewest:
            return (Violation(name, f"has {count} elements; at least {fewest} must be there"),)
        if most and count > most:
            return (Violation(name, f"has {count} elements; at most {most} are allowed"),)
        return ()

    yield check_count


def _rules(field: FieldDescriptor, limits: FieldLimits) -> Iterator[Rule]:
    yield from _text_rules(field, limits)
    yield from _number_rules(limits)
    if field.enum_type is not None:
        yield _known_value(field.enum_type)


def _text_rules(field: FieldDescriptor, limits: FieldLimits) -> Iterator[Rule]:
    if field.cpp_type != FieldDescriptor.CPPTYPE_STRING:  # which bytes fields have too
        return
    unit = "bytes" if field.type == FieldDescriptor.TYPE_BYTES else "characters"
    most = limits.max_length
    if most:
        yield (
            lambda value: (
                f"has {len(value)} {unit}; at most {most} are allowed" if len(value) > most else None
            )
        )
    if limits.pattern:
        # RE2 classes such as \\w are ASCII.
        matches, pattern = re.compile(limits.pattern, re.ASCII).fullmatch, limits.pattern
        yield lambda value: f"does not match {pattern}" if value and not matches(value) else None


def _number_rules(limits: FieldLimits) -> Iterator[Rule]:
    has_minimum, has_maximum = limits.HasField("minimum"), limits.HasField("maximum")
    if not has_minimum and not has_maximum:
        return
    least = limits.minimum if has_minimum else -math.inf
    most = limits.maximum if has_maximum else math.inf
    bounds = [f"at least {least:.15g}"] * has_minimum + [f"at most {most:.15g}"] * has_maximum
    allowed = " and ".join(bounds)

    def rule(value: float) -> str | None:
        if least <= value <= most and math.isfinite(value):
            return None
        return f"is {value:.15g}; it must be {allowed}"

    yield rule


def _known_value(enum: EnumDescriptor) -> Rule:
    known, name = frozenset(enum.values_by_number), enum.name
    return lambda value: None if value in known else f"is {value}, which is no value of {name}"


def _has_limits(descriptor: Descriptor) -> bool:
    """Whether a message of this type, or one inside it at any depth, has something to check."""
    seen, waiting = {descriptor.full_name}, [descriptor]
    while waiting:
        for field in waiting.pop().fields:
            if field.enum_type is not None or field.GetOptions().HasExtension(limits_pb2.limits):
                return True
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                waiting.append(inner)
    return False


def _limits(field: FieldDescriptor) -> FieldLimits:
    return field.GetOptions().Extensions[limits_pb2.limits]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _shown(key: object) -> str:
    if isinstance(key, str):
        return json.dumps(
            key if len(key) <= _SHOWN_KEY_LENGTH else f"{key[:_SHOWN_KEY_LENGTH]}…", ensure_ascii=False
        )
    return str(key)
