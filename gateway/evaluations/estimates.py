"""The model calls that a planned row makes, for estimates of cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from gateway.judges.registry import Judge

WRITTEN_CHARACTERS = 1000
"""The supposed length of a text that a model is to write, where the row has no similar one."""


class PlannedCalls(NamedTuple):
    """Calls of one model through one judge."""

    judge: Judge
    model: str
    """Empty: the judge's default."""
    call_count: int
    characters: int
    """The length of the content of all calls together, without the judge's own prompts."""
    prompt: str | None = ""
    """The prompt of the calls. Empty: the longest of the judge's prompts. None: none."""
    assumption: str = ""
    """What the number of calls supposes, as a sentence. Empty: it follows from the request."""


def text_length(message: Message) -> int:
    """The characters of all texts in a message."""
    return sum(map(len, _texts(message)))


def _texts(message: Message) -> Iterator[str]:
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        for one in values:
            if isinstance(one, Message):
                yield from _texts(one)
            elif field.type == FieldDescriptor.TYPE_STRING:
                yield one
