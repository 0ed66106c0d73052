"""JSON values for message types: those that protobuf writes, and those that are a little wrong."""

from __future__ import annotations

import base64
import datetime
import math
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from grpc_tools import protoc
from hypothesis import strategies as st

PACKAGE = "dramaturg.tests.datasets"
MAX_DEPTH = 5
"""How deep messages are nested in one another."""


def integers(bits: int, *, signed: bool) -> st.SearchStrategy[Any]:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    found: st.SearchStrategy[Any] = st.integers(least, most) | st.sampled_from([least, most])
    return found | found.map(str)


finite = st.floats(allow_nan=False, allow_infinity=False)
binary = st.binary(max_size=4).map(lambda data: base64.b64encode(data).decode())

SCALARS: Mapping[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_DOUBLE: finite | st.integers(-5, 5),
    FieldDescriptor.TYPE_FLOAT: st.floats(width=32, allow_nan=False, allow_infinity=False),
    FieldDescriptor.TYPE_INT32: integers(32, signed=True),
    FieldDescriptor.TYPE_INT64: integers(64, signed=True),
    FieldDescriptor.TYPE_UINT32: integers(32, signed=False),
    FieldDescriptor.TYPE_UINT64: integers(64, signed=False),
    FieldDescriptor.TYPE_SINT32: integers(32, signed=True),
    FieldDescriptor.TYPE_SINT64: integers(64, signed=True),
    FieldDescriptor.TYPE_FIXED32: integers(32, signed=False),
    FieldDescriptor.TYPE_FIXED64: integers(64, signed=False),
    FieldDescriptor.TYPE_SFIXED32: integers(32, signed=True),
    FieldDescriptor.TYPE_SFIXED64: integers(64, signed=True),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: st.text(max_size=5),
    FieldDescriptor.TYPE_BYTES: binary,
}
anything = st.recursive(
    st.none() | st.booleans() | finite | st.text(max_size=3),
    lambda part: st.lists(part, max_size=2) | st.dictionaries(st.text(max_size=3), part, max_size=2),
    max_leaves=4,
)
PROTOBUFS_OWN: Mapping[str, st.SearchStrategy[Any]] = {
    "google.protobuf.Any": st.just({}) | st.just({"@type": "x/google.protobuf.Duration", "value": "1.5s"}),
    "google.protobuf.Duration": st.sampled_from(["1.5s", "-3s"]),
    "google.protobuf.Empty": st.just({}),
    "google.protobuf.FieldMask": st.sampled_from(["", "aField.another,third"]),
    "google.protobuf.Struct": st.dictionaries(st.text(max_size=3), anything, max_size=2),
    "google.protobuf.Value": anything,
    "google.protobuf.ListValue": st.lists(anything, max_size=2),
    "google.protobuf.Timestamp": st.sampled_from(["2024-02-29T12:00:00Z", "2024-02-29T12:00:00.5+01:00"]),
    "google.protobuf.StringValue": st.text(max_size=3),
    "google.protobuf.Int64Value": integers(64, signed=True),
    "google.protobuf.BoolValue": st.booleans(),
}
NUMBERS = [0, 1, 7, -1, 2**31, 2**32, -(2**31) - 1, 2**63, 2**64, 10**400, 3.0, -0.0, 0.5, 3.5e38, 1e300]
NO_NUMBERS = [math.inf, -math.inf, math.nan, None, True, False]
TEXTS = ["", "1", "-1", "--1", "+1", " 1", "1 ", "1\n", "1_0", "٣", "²", "007", "1.0", "0.5", "1e3", "1e400"]
TEXTS += ["nan", "NaN", "inf", "Infinity", "-Infinity", "true", "false", "null", "x" * 400, "9" * 5000]
TEXTS += [
    "\ud800",
    "a\udfff",
    "\ud83d\ude00",
    "\U0001f600",
    "\0",
    "aGk=",
    "aGk",
    "a-_/",
    "1.5s",
    "COLOUR_RED",
]
PYTHONS = [b"aGk=", (1,), ("a",), datetime.date(2024, 2, 29), {1: "a"}, {None: 1}, {True: "a"}]
STRUCTURES: list[Any] = [[], [None], [[]], [{}], ["a"], [1]]
STRUCTURES += [{}, {"": ""}, {"a": None}, {"a": 1}, {"text": "a"}]
NO_FIELDS = ["unknown", "", "\ud800", "SerializeToString", f"[{PACKAGE}.extra]"]
strange = st.sampled_from([*NUMBERS, *NO_NUMBERS, *TEXTS, *PYTHONS, *STRUCTURES])
"""Values that are wrong for most fields, and unusual for all. Not all are of JSON: Parquet holds others."""


def json_values(kind: type[Message], faults: int = 0) -> st.SearchStrategy[dict[str, Any]]:
    """The JSON of messages of a type, in either spelling.

    Args:
        kind: The type.
        faults: How many of a hundred values and keys are strange. 0: the parser takes every value.
    """
    return _message_values(cast("Descriptor", kind.DESCRIPTOR), faults, MAX_DEPTH)


@st.composite
def _message_values(draw: st.DrawFn, message: Descriptor, faults: int, depth: int) -> dict[str, Any]:
    def is_wrong() -> bool:
        return faults > 0 and draw(st.integers(0, 99)) < faults

    def value(field: FieldDescriptor) -> Any:
        if is_wrong():
            return draw(strange)
        inner = field.message_type
        if field.enum_type is not None:
            return draw(st.sampled_from([known.name for known in field.enum_type.values]))
        if inner is None:
            return draw(SCALARS[field.type])
        if inner.full_name in PROTOBUFS_OWN:
            return draw(PROTOBUFS_OWN[inner.full_name])
        return draw(_message_values(inner, faults, depth - 1))

    def entries(entry: Descriptor) -> dict[str, Any]:
        key = entry.fields_by_name["key"]
        keys = SCALARS[key.type].map(lambda drawn: str(drawn).lower())
        return {draw(keys): value(entry.fields_by_name["value"]) for _ in range(draw(st.integers(0, 2)))}

    def whole(field: FieldDescriptor) -> Any:
        if is_wrong():
            return draw(strange)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return entries(field.message_type)
        if field.is_repeated:
            return [value(field) for _ in range(draw(st.integers(0, 2)))]
        return value(field)

    fields = [field for field in message.fields if depth or field.message_type is None]
    made: dict[str, Any] = {}
    taken: set[str] = set()
    for field in draw(st.lists(st.sampled_from(fields), max_size=5)) if fields else ():
        place = (field.containing_oneof or field).name
        if place not in taken or is_wrong():
            taken.add(place)
            made[draw(st.sampled_from([field.name, field.json_name]))] = whole(field)
    if is_wrong():
        made[draw(st.sampled_from(NO_FIELDS))] = draw(st.sampled_from([1, None]))
    return made


@cache
def message_types() -> Mapping[str, type[Message]]:
    """The messages of the protos beside this file."""
    folder = Path(__file__).parent
    with tempfile.NamedTemporaryFile() as made:
        common = Path(protoc.__file__).parent / "_proto"
        options = [f"-I{folder}", f"-I{common}", "--include_imports", f"--descriptor_set_out={made.name}"]
        assert protoc.main(["protoc", *options, *(path.name for path in sorted(folder.glob("*.proto")))]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(made.read())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in ("EveryKind", "OlderKinds")
    }
