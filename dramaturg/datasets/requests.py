"""Makes a request, or violations, from a row's value in the shape of protobuf's JSON.

Plain JSON values, which is most of what datasets hold, become messages without protobuf's JSON parser. The
parser is written in Python. A message's constructor is not and takes nested values too, but it takes
others than the parser and makes other messages of some. So each type has a reader, compiled once, which
turns a value into the constructor's arguments where both surely mean the same. Any other value is not plain,
a wrong one too: the parser decides about it and names the fault.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, NoReturn, TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from dramaturg.service.errors import Violation
from dramaturg.service.validation import unknown_word, violations

Read = Callable[[Any], Any]
"""Turns the JSON value of a field into what the constructor takes for it. Raises one of ``_NOT_PLAIN``."""


_DURATION = "google.protobuf.Duration"
_STRUCT, _STRUCT_DEPTH = "google.protobuf.Struct", 50
"""A free object, such as a JSON Schema: the parser checks it. It limits the depth of the whole value, so a
deep object is not plain.
"""
_TIMESTAMP = "google.protobuf.Timestamp"
_SECONDS = re.compile(r"(?P<sign>-?)(?P<seconds>[0-9]{1,9})(?:\.(?P<nanos>[0-9]{1,9}))?s")
SHOWN_LENGTH = 300
"""The maximum number of characters of a violation, which may quote the row."""

TOO_DEEP = "is nested too deeply"
OUT_OF_MEMORY = "needs more memory than there is"

Request = TypeVar("Request", bound=Message)

_NESTED = re.compile(r"Failed to parse (\w+) field: ")
_UNKNOWN = re.compile(r'has no field named "(?P<name>.*?)"(?= at |$)')
_WRONG_TYPE = re.compile(
    r"(unhashable type: |expected string or bytes-like object, got )'(?P<type>dict|list)'"
)
_TYPES = {"dict": "an object, where a single value belongs", "list": "a list, where a single value belongs"}
_AVAILABLE = re.compile(r"Available Fields\(except extensions\): \"\[(?P<names>[^\]]*)\]")


class _NotPlainError(Exception):
    """A value is not plain."""


_NOT_PLAIN = (
    _NotPlainError,
    KeyError,  # an unknown name of a field or an enum's value
    TypeError,  # a list or an object in place of such a name
    ValueError,  # half a surrogate pair, or a number out of its type's range
    OverflowError,  # an integer beyond all floats
    ParseError,  # what is no free object
)


def read_plain(value: Any, kind: type[Request]) -> Request | None:
    """The message that protobuf's JSON parser makes of a plain value. None: the value is not plain."""
    read = _message_reader(cast("Descriptor", kind.DESCRIPTOR))
    if read is None:
        return None
    try:
        return kind(**read(value))
    except _NOT_PLAIN:
        return None


@cache
def _message_reader(descriptor: Descriptor) -> Read | None:
    """Reads messages of a type. None: no value of it is plain."""
    # The JSON of protobuf's own types has another shape than their fields; the parser limits the depth.
    if _is_protobufs_own(descriptor.full_name) or _holds_itself(descriptor):
        return None
    spellings = {field.name: field for field in descriptor.fields}
    spellings |= {field.json_name: field for field in descriptor.fields}
    # A field without a reader is like one that is not there.
    fields = {key: (field.name, read) for key, field in spellings.items() if (read := _field_reader(field))}
    # Only one of the keys may be there that are spellings of one field or members of one oneof.
    place_of = {key: (field.containing_oneof or field).name for key, field in spellings.items()}.__getitem__

    def read_message(value: Any) -> Mapping[str, Any]:
        if type(value) is not dict:
            raise _NotPlainError
        if len(value) > 1 and len(set(map(place_of, value))) < len(value):
            raise _NotPlainError
        arguments = {}
        for key, part in value.items():
            name, read = fields[key]
            if part is not None:  # null is the same as nothing
                arguments[name] = read(part)
        return arguments

    return read_message


def _field_reader(field: FieldDescriptor) -> Read | None:
    """Reads what a field holds. None: nothing that it holds is plain."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        if key.type != FieldDescriptor.TYPE_STRING or value.message_type is not None:
            return None
        read = _value_reader(value)
        return _entries_reader(read) if read else None
    read = _value_reader(field)
    return _elements_reader(read) if read and field.is_repeated else read


def _value_reader(field: FieldDescriptor) -> Read | None:
    """Reads one value of a field."""
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        assert field.message_type is not None
        if field.message_type.full_name == _DURATION:
            return _read_duration
        if field.message_type.full_name == _TIMESTAMP:
            return _read_timestamp
        if field.message_type.full_name == _STRUCT:
            return _read_struct
        return _message_reader(field.message_type)
    if field.enum_type is not None:
        if _is_protobufs_own(field.enum_type.full_name):
            return None
        return {value.name: value.number for value in field.enum_type.values}.__getitem__
    return _SCALARS.get(field.type)


def _elements_reader(read: Read) -> Read:
    def read_elements(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _NotPlainError
        return [read(element) for element in value]

    return read_elements


def _entries_reader(read: Read) -> Read:
    def read_entries(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _NotPlainError
        return {_read_text(key): read(part) for key, part in value.items()}

    return read_entries


# The types are compared, not asked for instances: True is an instance of int.
def _read_text(value: Any) -> str:
    if type(value) is str:
        return value
    raise _NotPlainError


def _read_boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise _NotPlainError


def _read_integer(value: Any) -> int:
    if type(value) is int:
        return value
    # Integers of 64 bits are strings in protobuf's JSON; in cells of CSV all are.
    if type(value) is str and value.removeprefix("-").isdecimal():
        return int(value)
    raise _NotPlainError


def _read_number(value: Any) -> float:
    if type(value) in {float, int, str} and math.isfinite(number := float(value)):
        return number
    raise _NotPlainError


def _read_struct(value: Any) -> Mapping[str, Any]:
    if type(value) is not dict:
        raise _NotPlainError
    ParseDict(value, Struct(), max_recursion_depth=_STRUCT_DEPTH)
    return value


def _read_timestamp(value: Any) -> Mapping[str, int]:
    if type(value) is not str:
        raise _NotPlainError
    read = Timestamp()
    read.FromJsonString(value)
    return {"seconds": read.seconds, "nanos": read.nanos}


def _read_duration(value: Any) -> Mapping[str, int]:
    found = _SECONDS.fullmatch(value) if type(value) is str else None
    if found is None:
        raise _NotPlainError
    sign = -1 if found["sign"] else 1
    return {
        "seconds": sign * int(found["seconds"]),
        "nanos": sign * int((found["nanos"] or "").ljust(9, "0")),
    }


# Not bytes, whose base64 has variants, and not floats of 32 bits, whose range the constructor does not check.
_SCALARS: Mapping[int, Read] = {
    FieldDescriptor.TYPE_STRING: _read_text,
    FieldDescriptor.TYPE_BOOL: _read_boolean,
    FieldDescriptor.TYPE_DOUBLE: _read_number,
    FieldDescriptor.TYPE_INT32: _read_integer,
    FieldDescriptor.TYPE_INT64: _read_integer,
    FieldDescriptor.TYPE_UINT32: _read_integer,
    FieldDescriptor.TYPE_UINT64: _read_integer,
    FieldDescriptor.TYPE_SINT32: _read_integer,
    FieldDescriptor.TYPE_SINT64: _read_integer,
    FieldDescriptor.TYPE_FIXED32: _read_integer,
    FieldDescriptor.TYPE_FIXED64: _read_integer,
    FieldDescriptor.TYPE_SFIXED32: _read_integer,
    FieldDescriptor.TYPE_SFIXED64: _read_integer,
}


def _is_protobufs_own(full_name: str) -> bool:
    return full_name.startswith("google.protobuf.")


def _holds_itself(descriptor: Descriptor) -> bool:
    """Whether messages of a type may hold others of it, at any depth."""
    seen: set[str] = set()
    waiting = [descriptor]
    while waiting:
        for field in waiting.pop().fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                waiting.append(inner)
    return descriptor.full_name in seen


def parse_json(text: str | bytes) -> Any:
    """Reads JSON strictly: NaN and Infinity are no numbers.

    Raises:
        ValueError: It is no JSON; the message says what it is.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        # The text of a line may end in its line break, after which nothing is missing.
        position = min(error.pos, len(error.doc.rstrip()))
        line = error.doc.count("\n", 0, position) + 1
        column = position - error.doc.rfind("\n", 0, position)
        place = f"character {column}" + (f" of line {line}" if line > 1 else "")
        raise ValueError(f"is not JSON: {error.msg} at {place}") from error
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error


def read_request(
    value: Any, kind: type[Request], filled: Collection[str] = ()
) -> Request | Sequence[Violation]:
    """A request from its JSON value, checked against the limits of the contract.

    Args:
        value: The value.
        kind: The type of the request.
        filled: Required top-level fields that may be empty here, because the caller fills them.

    Returns:
        The request; or the violations, at least one.
    """
    if not isinstance(value, dict):
        return (Violation("", f"is not a JSON object but {type(value).__name__}"),)
    try:
        request = read_plain(value, kind) or ParseDict(value, kind())
    except ParseError as error:
        return (_explain(str(error), kind),)
    except RecursionError:
        # What could just be read may be too deep to be quoted.
        return (Violation("", TOO_DEEP),)
    except (TypeError, ValueError, OverflowError, SystemError) as error:
        # Values that the parser does not expect, such as a date of Parquet, or for an enum 1e400 or half a
        # surrogate pair. It is the cause of a SystemError that names the fault.
        return (Violation("", _short(f"is no {kind.DESCRIPTOR.name}: {error.__cause__ or error}")),)
    empty = [name for name in filled if not getattr(request, name)]
    return [found for found in violations(request, request.ByteSize()) if found.field not in empty] or request


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


@cache
def _place(name: str) -> re.Pattern[str]:
    return re.compile(rf' at "?{name}\.?(?P<path>[\w.\[\]]*)"?\.*$')


def _explain(message: str, kind: type[Message]) -> Violation:
    """The field and the fault in a message of protobuf's JSON parser, which nests the one in the other."""
    nested = _NESTED.findall(message)
    fault = _NESTED.sub("", message)
    available = _AVAILABLE.search(fault)
    fault = fault.partition("\n")[0].rstrip(". ")
    fault = _WRONG_TYPE.sub(_wrong_type, fault)
    pattern = _place(kind.DESCRIPTOR.name)
    place = pattern.search(fault)
    path = place["path"] if place and place["path"] else ".".join(nested)
    if unknown := _UNKNOWN.search(fault):
        names = available["names"].replace("'", "") if available else ""
        field = f"{path}.{unknown['name']}" if path else unknown["name"]
        return Violation(_short(field), f"there is no such field; there are {names}")
    return Violation(_short(path), unknown_word(fault) or _short(pattern.sub("", fault)))


def _wrong_type(found: re.Match[str]) -> str:
    return f"is {_TYPES[found['type']]}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}…"
