"""Counts the elements of an encoded message, before it is read.

An empty element takes two bytes encoded and some eighty in memory: a message of 16 MiB may take 640 MB and a
third of a second. Large messages are therefore walked first: as far as the limits of their lists, and no
further.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from dramaturg.service.validation import limits_of

SMALL_BYTES = 64 * 1024
"""The size of messages, and of parts of messages, that are not walked."""
OTHER_FIELDS = 10_000
"""The most fields of one message besides the elements of its lists: a sender writes each once."""

_MAX_VARINT_BYTES = 10


class Excess(NamedTuple):
    """A list with too many elements, or a message that cannot be walked."""

    field: str
    """The path of the list; empty: the bytes are no message that a protobuf library writes."""
    limit: int = 0


class _Plan(NamedTuple):
    lists: dict[int, tuple[str, int]]
    """Name and limit of the repeated fields of messages, texts and bytes, by number."""
    packed: dict[int, tuple[str, int]]
    """The same of repeated numbers."""
    parts: dict[int, tuple[str, Descriptor]]
    """Name and type of fields of messages."""
    fields: int
    """The most fields of a message; -1: a list has no limit."""


def find_excess(data: bytes, descriptor: Descriptor) -> Excess | None:
    """The first list of an encoded message that exceeds ``FieldLimits.max_items``; None without one.

    Messages of up to ``SMALL_BYTES``, and such parts of larger ones, are not walked: they hold fewer than
    33,000 elements.

    Args:
        data: The encoded message.
        descriptor: Its type.
    """
    if len(data) <= SMALL_BYTES:
        return None
    try:
        return _walk(data, 0, len(data), descriptor)
    except IndexError:
        return Excess("")


def _walk(data: bytes, position: int, end: int, descriptor: Descriptor) -> Excess | None:
    plan = _plan(descriptor)
    counts: dict[int, int] = {}
    left = plan.fields
    while position < end:
        tag = data[position]
        position += 1
        if tag & 0x80:
            tag, position = _varint(data, position - 1)
        number, wire = tag >> 3, tag & 7
        left -= 1
        if left == 0:
            return Excess("")
        if wire == 2:
            length = data[position]
            position += 1
            if length & 0x80:
                length, position = _varint(data, position - 1)
            counted = plan.lists.get(number)
            if counted is not None:
                count = counts[number] = counts.get(number, 0) + 1
                if count > counted[1]:
                    return Excess(*counted)
            elif number in plan.packed and length > _MAX_VARINT_BYTES * plan.packed[number][1]:
                return Excess(*plan.packed[number])
            if length > SMALL_BYTES and number in plan.parts:
                name, inner = plan.parts[number]
                found = _walk(data, position, min(position + length, end), inner)
                if found is not None:
                    return Excess(f"{name}.{found.field}" if found.field else "", found.limit)
            position += length
        elif wire == 0:
            while data[position] & 0x80:
                position += 1
            position += 1
            if number in plan.packed:
                count = counts[number] = counts.get(number, 0) + 1
                if count > plan.packed[number][1]:
                    return Excess(*plan.packed[number])
        elif wire in (1, 5):
            position += 8 if wire == 1 else 4
        else:  # groups, which proto3 does not write
            return Excess("")
    return None


@cache
def _plan(descriptor: Descriptor) -> _Plan:
    lists: dict[int, tuple[str, int]] = {}
    packed: dict[int, tuple[str, int]] = {}
    parts: dict[int, tuple[str, Descriptor]] = {}
    unlimited = False
    for field in descriptor.fields:
        limits = limits_of(field)
        inner = field.message_type
        is_map = inner is not None and inner.GetOptions().map_entry
        if inner is not None and not is_map and not limits.contents_unlimited:
            parts[field.number] = field.name, inner
        if not field.is_repeated:
            continue
        if not limits.max_items:
            unlimited = True
        elif inner is not None or field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            lists[field.number] = field.name, limits.max_items
        else:
            packed[field.number] = field.name, limits.max_items
    most = sum(limit for _, limit in (*lists.values(), *packed.values())) + OTHER_FIELDS
    return _Plan(lists, packed, parts, -1 if unlimited else most)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte: Any = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 7 * _MAX_VARINT_BYTES:
            raise IndexError
