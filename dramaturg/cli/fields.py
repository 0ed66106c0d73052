"""``--set FIELD=VALUE``: fields of messages that have no option of their own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dramaturg.service.validation import violations


class Setting(NamedTuple):
    """A field of a message and its value."""

    path: str
    """Names of fields, with dots between them."""
    value: str
    """The value as text. Those of a repeated field have commas between them; empty: none."""

    @property
    def root(self) -> str:
        """The first name of the path."""
        return self.path.partition(".")[0]


def parse_settings(texts: Iterable[str]) -> Sequence[Setting]:
    """Reads FIELD=VALUE.

    Raises:
        ValueError: One is malformed.
    """
    settings = []
    for text in texts:
        path, equals, value = text.partition("=")
        if not (path and equals):
            raise ValueError(f"--set {text!r} is not of the form FIELD=VALUE")
        settings.append(Setting(path, value))
    return settings


def set_fields(message: Message, settings: Iterable[Setting]) -> None:
    """Sets fields of a message, in place of what it has.

    Durations are seconds. Enumerated values are written without the name of their type, as "single-judge".

    Raises:
        ValueError: A field does not exist, or its value is none of its type.
    """
    for setting in settings:
        try:
            _set(message, setting.path, setting.value)
        except ValueError as error:
            raise ValueError(f"--set {setting.path}={setting.value}: {error}") from error


def check_fields(message: Message, settings: Iterable[Setting]) -> None:
    """Sets fields of a message that has no others, and checks their limits.

    Raises:
        ValueError: As ``set_fields``, or a value is outside of the limits of its field.
    """
    for setting in settings:
        set_fields(message, [setting])
        for found in violations(message):
            if found.field == setting.path or found.field.startswith(f"{setting.path}["):
                raise ValueError(f"--set {setting.path}={setting.value}: {found.description}")


def _set(message: Message, path: str, text: str) -> None:
    name, _, rest = path.partition(".")
    fields = message.DESCRIPTOR.fields_by_name
    if name not in fields:
        close = get_close_matches(name, fields, 1)
        hint = f"did you mean {close[0]}?" if close else f"the fields are {', '.join(fields)}"
        raise ValueError(f"there is no field {name}; {hint}")
    field, owner = fields[name], getattr(message, name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        if not rest or kind.fields_by_name["value"].message_type is not None:
            raise ValueError(f"{name} is set as {name}.KEY=VALUE")
        owner[rest] = text
    elif kind is not None and kind.full_name == "google.protobuf.Duration":
        try:
            owner.FromNanoseconds(round(_number(text) * 1e9))
        except (OverflowError, TypeError):
            raise ValueError(f"{text!r} is out of range") from None
    elif kind is not None:
        if field.is_repeated:
            raise ValueError(f"{name} is a list of messages, which only rows can have")
        if not rest:
            raise ValueError(f"{name} has fields: {', '.join(f'{name}.{one.name}' for one in kind.fields)}")
        _set(owner, rest, text)
    elif rest:
        raise ValueError(f"{name} has no fields")
    elif field.is_repeated:
        values = [_scalar(field, one.strip()) for one in text.split(",") if one.strip()]
        message.ClearField(name)
        getattr(message, name).extend(values)
    else:
        value = _scalar(field, text)
        try:
            setattr(message, name, value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{text!r} is out of range") from error


def _scalar(field: Any, text: str) -> Any:
    if field.enum_type is not None:
        prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field.enum_type.name).upper() + "_"
        values = {
            one.name.removeprefix(prefix).lower().replace("_", "-"): one.number
            for one in field.enum_type.values
            if one.number
        }
        if (key := text.lower().replace("_", "-")) not in values:
            raise ValueError(f"the values are {', '.join(values)}")
        return values[key]
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if text.lower() not in {"true", "false"}:
            raise ValueError("the values are true, false")
        return text.lower() == "true"
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return text
    number = _number(text)
    if field.cpp_type in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
        return number
    if number != int(number):
        raise ValueError(f"{text!r} is no whole number")
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else int(number)


def _number(text: str) -> float:
    try:
        number = float(text.removesuffix("s"))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is no number")
    return number
