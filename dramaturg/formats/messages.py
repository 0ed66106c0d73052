"""Lists of messages as conversations.

Messages are those of the chat completions API, of the Responses API (its items), of LangChain, of Inspect, or
of the semantic conventions of OpenTelemetry for generative AI; reasoning is left out.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from dramaturg.api.common.v1.content_pb2 import Conversation, Image, Part, ToolCall, ToolResult, Turn

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "chat": "chat",
}
"""Types of LangChain's messages as roles."""
_READ = "text, images, calls of tools and their results are read"


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
    return Conversation(
        turns=[
            _turn(one, f"{name}[{index}]")
            for index, one in enumerate(value)
            if not (isinstance(one, dict) and one.get("type") in _REASONING and "role" not in one)
        ]
    )


def is_message(value: Any) -> bool:
    """Whether a value has the role of a message, or is one that LangChain wrote."""
    return isinstance(value, dict) and bool(_role(_unwrapped(value)))


def _unwrapped(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a message that LangChain wrote with its class or its type around them.

    A call of the Responses API, or its result, becomes the message that has it.
    """
    if message.get("type") == "function_call":
        return {"role": "assistant", "tool_calls": [{**message, "id": message.get("call_id")}]}
    if message.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": message.get("call_id"), "content": message.get("output")}
    path = message.get("id")
    if message.get("lc") and isinstance(path, list) and isinstance(message.get("kwargs"), dict):
        named = str(path[-1] if path else "").removesuffix("Chunk").removesuffix("Message").casefold()
        return {"type": named, **message["kwargs"]}
    if isinstance(message.get("data"), dict) and "role" not in message:
        return {"type": message.get("type"), **message["data"]}
    return message


def _role(message: Mapping[str, Any]) -> str:
    role = message.get("role")
    if role is None and "content" in message:
        role = _ROLES.get(str(message.get("type")))
    return role if isinstance(role, str) else ""


def _turn(message: Any, place: str) -> Turn:
    message = _unwrapped(message) if isinstance(message, dict) else {}
    role = _role(message)
    if not role:
        raise MessagesError(f"{place}.role: is missing")
    name = message.get("name")
    turn = Turn(role=role, name=name if isinstance(name, str) else "")
    content = message.get("content", message.get("parts"))
    call_id = message.get("tool_call_id")
    if isinstance(call_id, str) or (role == "tool" and "parts" not in message):
        failed = bool(message.get("error")) or message.get("status") == "error"
        turn.parts.append(_result({"id": call_id, "response": content, "is_error": failed}, place))
    else:
        turn.parts.extend(_contents(content, f"{place}.{'content' if 'content' in message else 'parts'}"))
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise MessagesError(f"{place}.tool_calls: is no list")
    known = {part.tool_call.id for part in turn.parts if part.tool_call.id}
    made = (_call(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(calls))
    # LangChain repeats the calls that stand in the content.
    turn.parts.extend(part for part in made if part.tool_call.id not in known)
    return turn


def _contents(content: Any, place: str) -> Iterator[Part]:
    if content is None or content == "":
        return
    if isinstance(content, str):
        yield Part(text=content)
        return
    if not isinstance(content, list):
        raise MessagesError(f"{place}: is no text and no list of parts")
    for index, one in enumerate(content):
        where = f"{place}[{index}]"
        if isinstance(one, str):
            yield Part(text=one)
            continue
        kind = one.get("type") if isinstance(one, dict) else None
        read = _PARTS.get(kind) if isinstance(kind, str) else None
        if read is not None:
            yield read(one, where)
        elif kind not in _REASONING:
            raise MessagesError(f"{where}: has the type {kind!r}; {_READ}")


def _words(one: Mapping[str, Any], place: str) -> Part:
    text = one.get("text", one.get("content", one.get("refusal")))
    if not isinstance(text, str):
        raise MessagesError(f"{place}: has no text")
    return Part(text=text)


def _image(one: Mapping[str, Any], place: str) -> Part:
    """An image: an address or a data URL, or base64 with its media type."""
    kind = one["type"]
    if kind in ("blob", "uri") and one.get("modality", "image") != "image":
        raise MessagesError(f"{place}: is {one['modality']!r}; {_READ}")
    source = one.get("source")
    source = source if isinstance(source, dict) else one
    media_type = source.get("media_type", source.get("mime_type"))
    media_type = media_type if isinstance(media_type, str) else ""
    data = source.get("data", source.get("content"))
    if isinstance(data, str):
        return Part(image=Image(data=_decoded(data, place), media_type=media_type))
    address = source.get("image_url", source.get("image", source.get("url", source.get("uri"))))
    address = address.get("url") if isinstance(address, dict) else address
    if not isinstance(address, str):
        raise MessagesError(f"{place}: the image has no address")
    if not address.startswith("data:"):
        return Part(image=Image(uri=address, media_type=media_type))
    head, _, data = address[5:].partition(",")
    return Part(image=Image(data=_decoded(data, place), media_type=head.partition(";")[0]))


def _decoded(data: str, place: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise MessagesError(f"{place}: the image is no base64") from error


def _call(call: Any, place: str) -> Part:
    fields = call if isinstance(call, dict) else {}
    function = fields.get("function")
    named = function if isinstance(function, dict) else fields
    name = named.get("name", function if isinstance(function, str) else None)
    if not isinstance(name, str) or not name:
        raise MessagesError(f"{place}: has no name of a function")
    arguments: Any = next((named[key] for key in ("arguments", "args", "input") if named.get(key)), {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Part(tool_call=ToolCall(id=_id(fields, "id"), name=name, arguments=text))


def _result(one: Mapping[str, Any], place: str) -> Part:
    del place
    content = next((one[key] for key in ("response", "result", "content") if one.get(key) is not None), "")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        content = "\n".join(texts) if len(texts) == len(parts) else content
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    call_id = _id(one, "id") or _id(one, "tool_use_id")
    return Part(tool_result=ToolResult(tool_call_id=call_id, text=text, is_error=bool(one.get("is_error"))))


def _id(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


_PARTS: Mapping[str, Callable[[Mapping[str, Any], str], Part]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "refusal"), _words),
    **dict.fromkeys(("image_url", "input_image", "image", "blob", "uri"), _image),
    **dict.fromkeys(("tool_call", "tool_use"), _call),
    **dict.fromkeys(("tool_call_response", "tool_result"), _result),
}
"""The readers of the parts of a message, by type."""
_REASONING = ("reasoning", "thinking", "redacted_thinking")
