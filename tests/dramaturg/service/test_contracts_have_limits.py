"""Every text and every list that a caller can send has a limit, in every contract."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

import dramaturg.api
from dramaturg.api.common.v1 import limits_pb2

# There can be very many of these: their service checks them while it reads them, by the limits in their
# comments.
CHECKED_BY_THEIR_SERVICE = {
    "dramaturg.api.graph.v1.Event",
    "dramaturg.api.graph.v1.EventEdge",
}

API = Path(dramaturg.api.__path__[0])


def files() -> Iterator[FileDescriptor]:
    for path in sorted(API.rglob("*_service_pb2.py")):
        name = ".".join(path.relative_to(API.parents[1]).with_suffix("").parts)
        yield importlib.import_module(name).DESCRIPTOR


def requests() -> list[Descriptor]:
    return [
        method.input_type
        for file in files()
        for service in file.services_by_name.values()
        for method in service.methods
    ]


def reachable(descriptor: Descriptor, seen: set[str]) -> Iterator[FieldDescriptor]:
    if descriptor.full_name in seen:
        return
    seen.add(descriptor.full_name)
    for field in descriptor.fields:
        yield field
        if field.GetOptions().Extensions[limits_pb2.limits].contents_unlimited:
            continue
        if field.message_type is not None and not field.message_type.full_name.startswith("google.protobuf."):
            yield from reachable(field.message_type, seen)


def unlimited(field: FieldDescriptor) -> str | None:
    owner = field.containing_type
    if owner is None or owner.GetOptions().map_entry:  # the limits stand on the map
        return None
    if owner.full_name in CHECKED_BY_THEIR_SERVICE:
        return None
    limits = field.GetOptions().Extensions[limits_pb2.limits]
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    texts = [field, *(field.message_type.fields if is_map and field.message_type is not None else [])]
    if field.is_repeated and not limits.max_items:
        return f"{field.full_name} has no max_items"
    if any(text.cpp_type == FieldDescriptor.CPPTYPE_STRING for text in texts) and not limits.max_length:
        return f"{field.full_name} has no max_length"
    return None


@pytest.mark.parametrize("request_type", requests(), ids=lambda descriptor: descriptor.full_name)
def test_every_text_and_list_of_a_request_is_limited(request_type: Descriptor) -> None:
    assert [wrong for field in reachable(request_type, set()) if (wrong := unlimited(field))] == []


def test_the_contracts_were_found() -> None:
    assert len(requests()) >= 12
