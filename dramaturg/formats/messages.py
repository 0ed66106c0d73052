"""Conversations written as messages of the chat completions API: role, content, tool calls and results."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from dramaturg.api.common.v1.content_pb2 import Conversation, Image, Part, ToolCall, ToolResult, Turn

_TEXTS = ("text", "input_text", "output_text")
_IMAGES = ("image_url", "input_image")


class MessagesError(ValueError):
    """A value is no list of messages; the message says where and why."""


def read_messages(value: Any, name: str = "messages") -> Conversation:
    """Reads a list of messages, also as JSON.

    Args:
        value: The messages.
        name: What errors call the list.

    Raises:
        MessagesError: It is no list of messages, or has content of another kind than text, images, calls of
            tools and their results.
    """
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if not isinstance(value, list) or not value:
        raise MessagesError(f"{name}: is no list of messages")
    return Conversation(turns=[_turn(one, f"{name}[{index}]") for index, one in enumerate(value)])


def _turn(message: Any, place: str) -> Turn:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or not role:
        raise MessagesError(f"{place}.role: is missing")
    name = message.get("name")
    turn = Turn(role=role, name=name if isinstance(name, str) else "")
    content = message.get("content")
    call_id = message.get("tool_call_id")
    if role == "tool" or isinstance(call_id, str):
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        result = ToolResult(tool_call_id=call_id if isinstance(call_id, str) else "", text=text)
        turn.parts.append(Part(tool_result=result))
    else:
        turn.parts.extend(_contents(content, f"{place}.content"))
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise MessagesError(f"{place}.tool_calls: is no list")
    turn.parts.extend(_call(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(calls))
    return turn


def _contents(content: Any, place: str) -> Iterator[Part]:
    if content is None:
        return
    if isinstance(content, str):
        yield Part(text=content)
        return
    if not isinstance(content, list):
        raise MessagesError(f"{place}: is no text and no list of parts")
    for index, one in enumerate(content):
        where = f"{place}[{index}]"
        kind = one.get("type") if isinstance(one, dict) else None
        if kind in _TEXTS and isinstance(one.get("text"), str):
            yield Part(text=one["text"])
        elif kind in _IMAGES:
            yield Part(image=_image(one.get("image_url"), where))
        else:
            raise MessagesError(f"{where}: has the type {kind!r}; text and image_url are read")


def _image(value: Any, place: str) -> Image:
    address = value.get("url") if isinstance(value, dict) else value
    if not isinstance(address, str):
        raise MessagesError(f"{place}.image_url: has no address")
    if not address.startswith("data:"):
        return Image(uri=address)
    head, _, data = address[5:].partition(",")
    try:
        return Image(data=base64.b64decode(data, validate=True), media_type=head.partition(";")[0])
    except binascii.Error as error:
        raise MessagesError(f"{place}.image_url: is no base64") from error


def _call(call: Any, place: str) -> Part:
    function = call.get("function") if isinstance(call, dict) else None
    function = function if isinstance(function, Mapping) else call
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise MessagesError(f"{place}: has no name of a function")
    arguments = function.get("arguments", function.get("args"))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    call_id = call.get("id")
    return Part(tool_call=ToolCall(id=call_id if isinstance(call_id, str) else "", name=name, arguments=text))
