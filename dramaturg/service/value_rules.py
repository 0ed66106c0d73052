"""Rules of one value, made of the limits of its field (``common/v1/limits.proto``)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from dramaturg.api.common.v1 import limits_pb2
from dramaturg.api.common.v1.limits_pb2 import FieldLimits
from dramaturg.service.errors import Fault

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


def time_fault(time: Any) -> Fault | None:
    """The fault of a ``google.protobuf.Duration`` or ``Timestamp`` that is out of the range of its type.

    Neither JSON nor most languages can state such a value.
    """
    try:
        time.ToJsonString()
    except ValueError:
        name = time.DESCRIPTOR.name
        return Fault(f"is {time.seconds} s and {time.nanos} ns; it is no valid {name}", "OUT_OF_RANGE")
    return None


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
