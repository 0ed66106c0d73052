"""Makes a request, or violations, from a row's value in the shape of protobuf's JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, NoReturn, TypeVar

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from dramaturg.datasets.plain_json import read_plain
from dramaturg.service.errors import Violation
from dramaturg.service.validation import violations

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
    return Violation(_short(path), _short(pattern.sub("", fault)))


def _wrong_type(found: re.Match[str]) -> str:
    return f"is {_TYPES[found['type']]}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}…"
