"""Conversations as text, for prompts, quotes, people and reports."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dramaturg.api.common.v1 import content_pb2
from dramaturg.api.common.v1.content_pb2 import Conversation, Part, Turn
from dramaturg.api.judging.v1.judge_service_pb2 import CRITERION_UNIT_TURN, CriterionUnit

_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
"""The first bytes of images, by which their types are told."""
MAX_SHOWN_IMAGE_BYTES = 200_000
"""The most bytes of an image that pages show; of larger ones they state the type."""


def turn_text(turn: Turn) -> str:
    """A turn as text: its role, then its parts; calls with name and arguments, images as type and address."""
    speaker = f"{turn.role} ({turn.name})" if turn.name else turn.role
    return "\n".join([f"{speaker}:", *map(_part_text, turn.parts)])


def turn_texts(conversation: Conversation) -> Sequence[str]:
    """The turns as texts (``turn_text``)."""
    return [turn_text(turn) for turn in conversation.turns]


def transcript(conversation: Conversation) -> str:
    """The whole conversation as text. Empty: it has no turns."""
    return "\n\n".join(turn_texts(conversation))


def final_answer(conversation: Conversation) -> str:
    """The text of the last turn of the assistant that has text; empty where there is none."""
    for turn in reversed(conversation.turns):
        texts = [part.text for part in turn.parts if part.text]
        if turn.role == "assistant" and texts:
            return "\n".join(texts)
    return ""


def tool_calls(conversation: Conversation) -> Iterator[content_pb2.ToolCall]:
    """The calls of tools, in order."""
    for turn in conversation.turns:
        for part in turn.parts:
            if part.HasField("tool_call"):
                yield part.tool_call


class Unit(NamedTuple):
    """A turn of the assistant, or a call of a tool."""

    turn_index: int
    """The turn, from 0."""
    call_index: int | None
    """The call among those of the turn, from 0. None: the whole turn."""


def unit_name(unit: Unit) -> str:
    """A turn or a call in words, counted from 1."""
    call = "" if unit.call_index is None else f", call {unit.call_index + 1}"
    return f"Turn {unit.turn_index + 1}{call}"


def units_of(conversation: Conversation, unit: CriterionUnit.ValueType) -> Sequence[Unit]:
    """What of a conversation a criterion judges one by one, in order."""
    if unit == CRITERION_UNIT_TURN:
        turns = enumerate(conversation.turns)
        return [Unit(index, None) for index, turn in turns if turn.role == "assistant"]
    return [
        Unit(index, call)
        for index, turn in enumerate(conversation.turns)
        for call in range(sum(part.HasField("tool_call") for part in turn.parts))
    ]


def unit_text(conversation: Conversation, unit: Unit) -> str:
    """The text of a turn, or the arguments of a call."""
    if unit.call_index is not None:
        return _call(conversation, unit.turn_index, unit.call_index).arguments
    return "\n".join(part.text for part in conversation.turns[unit.turn_index].parts if part.text)


def unit_words(conversation: Conversation, unit: Unit) -> str:
    """The parts of a turn as text (``turn_text``), or the tool and the arguments of a call."""
    if unit.call_index is not None:
        call = _call(conversation, unit.turn_index, unit.call_index)
        return f"{call.name} {call.arguments}"
    return "\n".join(map(_part_text, conversation.turns[unit.turn_index].parts))


def arguments_of(call: content_pb2.ToolCall) -> Mapping[str, Any] | None:
    """The arguments of a call. None: they are no JSON object."""
    try:
        value = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def image_type(data: bytes) -> str:
    """The media type of an image, by its first bytes. Empty: it is none that models take."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return next((name for start, name in _IMAGES.items() if data.startswith(start)), "")


def shown_images(turn: Turn) -> Iterator[bytes]:
    """The images of a turn that are small enough for a page. Those by address are not loaded."""
    for part in turn.parts:
        data = part.image.data
        if data and len(data) <= MAX_SHOWN_IMAGE_BYTES and image_type(data):
            yield data


def image_url(data: bytes) -> str:
    """The data URL of an image of ``shown_images``."""
    return f"data:{image_type(data)};base64,{b64encode(data).decode()}"


def kinds_of_parts(conversation: Conversation) -> set[str]:
    """The kinds of its parts: members of ``Part.content``."""
    return {str(part.WhichOneof("content")) for turn in conversation.turns for part in turn.parts}


def _call(conversation: Conversation, turn_index: int, call_index: int) -> content_pb2.ToolCall:
    calls = [part.tool_call for part in conversation.turns[turn_index].parts if part.HasField("tool_call")]
    return calls[call_index]


def _part_text(part: Part) -> str:
    content = part.WhichOneof("content")
    if content == "tool_call":
        return f"[calls {part.tool_call.name} with {part.tool_call.arguments or '{}'}]"
    if content == "tool_result":
        kind = "error" if part.tool_result.is_error else "result"
        return f"[{kind} of the tool: {part.tool_result.text}]"
    if content == "image":
        address = f": {part.image.uri}" if part.image.uri else ""
        return f"[image, {part.image.media_type or 'of unknown type'}{address}]"
    if content == "document":
        one = part.document
        return "\n".join(filter(None, ("[document]", one.title, one.source, one.text)))
    return part.text
