"""Streamed answers (server-sent events), put together into the body that the same answer has unstreamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_TEXTS = ("content", "reasoning_content", "reasoning", "thinking", "refusal")


def is_stream(content_type: str) -> bool:
    """Whether a response of this type is streamed."""
    return content_type.partition(";")[0].strip().lower() == "text/event-stream"


def assemble(content: bytes) -> dict[str, Any]:
    """The body of a streamed answer.

    Raises:
        ValueError: an event is no JSON, or the stream ended before the answer did.
    """
    body: dict[str, Any] = {}
    message: dict[str, Any] = {"content": None}
    logprobs: list[Any] = []
    finish: Any = None
    ended = False
    for data in _events(content):
        if data == "[DONE]":
            ended = True
            break
        event = json.loads(data)
        if not isinstance(event, dict):
            raise ValueError("an event is not a JSON object")  # noqa: TRY004 - a fault of the response
        if event.get("error") and not event.get("choices"):
            return {"error": event["error"]}
        for name in ("model", "usage"):
            if event.get(name):
                body[name] = event[name]
        for choice in (event.get("choices") or [])[:1]:
            if choice.get("index"):
                continue
            if choice.get("error"):
                return {"error": choice["error"]}
            _add(message, choice.get("delta") or choice.get("message") or {})
            logprobs.extend((choice.get("logprobs") or {}).get("content") or ())
            finish = choice.get("finish_reason") or finish
    if finish is None and not ended:
        raise ValueError("the stream ended before the answer did")
    choice = {"index": 0, "message": message, "finish_reason": finish}
    if logprobs:
        choice["logprobs"] = {"content": logprobs}
    return {**body, "choices": [choice]}


def _events(content: bytes) -> Iterator[str]:
    """The data of each event (HTML standard, section 9.2.6)."""
    data: list[str] = []
    for line in (
        content.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    ):
        if not line:
            if data:
                yield "\n".join(data)
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
    if data:
        yield "\n".join(data)


def _add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in _TEXTS:
        part = delta.get(name)
        if isinstance(part, str):
            message[name] = (message.get(name) or "") + part
        elif isinstance(part, list):
            message[name] = [*(message.get(name) or ()), *part]
    if delta.get("tool_calls"):
        message.setdefault("tool_calls", delta["tool_calls"])
