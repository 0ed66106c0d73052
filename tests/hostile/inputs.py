"""Hostile texts and values, and the entry points that read them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.judge.fence import fence
from dramaturg.judge.reasoning import separate
from dramaturg.judge.steps import parse_candidate
from services.generation.answers.extraction import extract
from services.generation.answers.tolerant_json import read_tolerantly
from services.generation.authoring.choices import read_choice
from services.generation.edges.yes_no import read_yes_no
from services.judging.pairs.form import read_vote
from services.judging.pairs.spans import written_ballots

Parser = Callable[[str], Any]

PARSERS: Mapping[str, Parser] = {
    "steps": lambda text: parse_candidate(Candidate(id="a", text=text)),
    "reasoning": separate,
    "extraction": lambda text: _or_error(extract, text),
    "tolerant JSON": lambda text: _or_error(read_tolerantly, text),
    "choice": lambda text: read_choice(text, "walk home", "take the bus"),
    "yes or no": read_yes_no,
    "vote": read_vote,
    "ballots": lambda text: list(written_ballots(text)),
    "fence": lambda text: fence("text", text, limit=200_000),
}
"""The parsers of what models and judges write, and of candidates."""

PATTERNS: tuple[str, ...] = (
    "{",
    "[",
    '{"a":',
    '{"a": "',
    "[[8]] ",
    '"rating": 7 ',
    '{"rating": 7}',
    "```json\n",
    "```",
    "<think>",
    "</think>",
    "<|channel|>",
    "1. a\n",
    "1. ",
    "Step 1: ",
    "\u200b\n",
    "- \n",
    "\n",
    " ",
    "\t",
    "\\",
    '\\"',
    "\\u",
    "**",
    "* ",
    "#",
    "step0 -> step1;",
    "option 1 ",
    "either ",
    "Yes. No. ",
    "(((",
    "a, b, ",
    "1 2 3 ",
    "9",
    "-1.5e",
    "\ufeff",
    "\u202e",
    "é\u0301",
    "好。",
    "=",
)
"""Texts that are repeated."""
BEGINNINGS = ("", "1. a\n2. ", '{"reason": "', "<think>", "```json\n{")


def hostile_texts(length: int) -> Iterator[str]:
    """Texts of a length, each a repetition."""
    for beginning in BEGINNINGS:
        for pattern in PATTERNS:
            repeats = max(0, length - len(beginning)) // len(pattern)
            yield beginning + pattern * repeats


def random_text(source: random.Random) -> str:
    """A short text of patterns, letters and any characters."""
    parts = []
    for _ in range(source.randint(1, 12)):
        kind = source.random()
        if kind < 0.7:
            parts.append(source.choice(PATTERNS) * source.randint(1, 3))
        elif kind < 0.9:
            parts.append(source.choice(("reason", "rating", "verdict", "pass", "fail", "7", "null", "true")))
        else:
            parts.append(chr(source.choice((source.randrange(1, 0x300), source.randrange(0xE000, 0x11000)))))
    return "".join(parts)


def _or_error(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return None


HOSTILE_STRINGS = (
    *("", " ", "\0", "x" * 1_000_000, "\u202e" * 1000),
    *("../../etc/passwd", "=1+1", "{{7*7}}", "\ud7ff\U0010ffff"),
)
_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), -1, 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), -1, 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (2**32 - 1,),
    FieldDescriptor.CPPTYPE_UINT64: (2**64 - 1,),
    FieldDescriptor.CPPTYPE_DOUBLE: (float("nan"), float("inf"), -1e308),
    FieldDescriptor.CPPTYPE_FLOAT: (float("nan"), float("inf"), -1e38),
    FieldDescriptor.CPPTYPE_BOOL: (True,),
    FieldDescriptor.CPPTYPE_ENUM: (2**31 - 1, -1),
}
MANY = 50_000
"""The elements of a hostile list."""
_DEPTH = 3


def mutations(request: Message) -> Iterator[tuple[str, Message]]:
    """Copies of a valid request, each with one field hostile, with the path of the field and the value."""
    for path, field in _fields(cast("Descriptor", request.DESCRIPTOR), _DEPTH):
        for label, change in _changes(field):
            copy = type(request)()
            copy.CopyFrom(request)
            inside: Any = copy
            for name in path[:-1]:
                part = getattr(inside, name)
                if inside.DESCRIPTOR.fields_by_name[name].is_repeated:
                    inside = part[0] if len(part) else part.add()
                else:
                    part.SetInParent()
                    inside = part
            change(inside, path[-1])
            yield f"{'.'.join(path)}: {label}", copy


def _fields(message: Descriptor, depth: int) -> Iterator[tuple[tuple[str, ...], FieldDescriptor]]:
    for field in message.fields:
        yield (field.name,), field
        inner = field.message_type
        if inner is not None and depth > 1 and not inner.GetOptions().map_entry:
            for path, found in _fields(inner, depth - 1):
                yield (field.name, *path), found


def _changes(field: FieldDescriptor) -> Iterator[tuple[str, Callable[[Any, str], None]]]:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        if inner.fields_by_name["value"].cpp_type == FieldDescriptor.CPPTYPE_STRING:
            yield "many entries", lambda m, name: getattr(m, name).update({str(n): "x" for n in range(MANY)})
        return
    if inner is not None:
        if field.is_repeated:
            yield "many", _add_many
        else:
            yield "empty", lambda m, name: getattr(m, name).SetInParent()
        return
    values: tuple[Any, ...]
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        is_bytes = field.type == FieldDescriptor.TYPE_BYTES
        values = (b"", b"\xff" * 1000) if is_bytes else HOSTILE_STRINGS
    else:
        values = _NUMBERS[field.cpp_type]
    for value in values:
        if field.is_repeated:
            yield _brief(value), partial(_append, value)
        else:
            yield _brief(value), partial(_set, value)
    if field.is_repeated:
        yield "many", lambda m, name: getattr(m, name).extend([values[0]] * MANY)


def _add_many(message: Any, name: str) -> None:
    for _ in range(MANY):
        getattr(message, name).add()


def _append(value: Any, message: Any, name: str) -> None:
    getattr(message, name).append(value)


def _set(value: Any, message: Any, name: str) -> None:
    setattr(message, name, value)


def _brief(value: Any) -> str:
    return repr(value)[:20]
