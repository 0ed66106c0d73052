"""Anthropic's Messages API, by the package ``anthropic``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anthropic

from services.generation.calls import Call, Message
from services.generation.providers.packages import (
    Api,
    Connection,
    Reply,
    completion,
    conversation,
    effort,
    of_stainless,
    sampling,
    schema,
    stainless,
    token_counts,
    wants_object,
)
from services.generation.providers.parameters import Dialect, Parameter

DEFAULT_OUTPUT_TOKENS = 4096
"""The cap where neither the call nor the settings state one: the API requires one."""


class MessagesApi(Api):
    """The API.

    A schema is an output format; where a model has none, the input of a tool that the model must call.
    """

    kind = "anthropic"
    never = frozenset({Parameter.SEED, Parameter.LOGPROBS, Parameter.TOP_LOGPROBS})

    def __init__(self, connection: Connection) -> None:
        self._headers = connection.headers
        self._client = anthropic.AsyncAnthropic(**stainless(connection))

    async def send(self, call: Call, dialect: Dialect) -> Reply:
        instructions, messages = conversation(call, dialect)
        body: dict[str, Any] = {
            "model": call.model,
            "max_tokens": dialect.output_tokens(call) or DEFAULT_OUTPUT_TOKENS,
            "messages": [{"role": message.role.value, "content": _content(message)} for message in messages],
        }
        # The package has no arguments for temperature and top_p, which only older models take.
        extra = {
            **sampling(call, dialect, temperature="temperature", top_p="top_p", stop="stop_sequences"),
            **dialect.extra_body,
        }
        if instructions:
            mark = {} if Parameter.PROMPT_CACHE in dialect.omit else {"cache_control": {"type": "ephemeral"}}
            body["system"] = [{"type": "text", "text": instructions, **mark}]
        config: dict[str, Any] = {}
        if effort(call, dialect):
            config["effort"] = effort(call, dialect)
        form = schema(call, dialect)
        if form is not None:
            config["format"] = {"type": "json_schema", "schema": json.loads(form.text)}
        elif call.json_form is not None and wants_object(call, dialect):
            tool = {"name": call.json_form.name, "input_schema": json.loads(call.json_form.text)}
            body["tools"] = [tool]
            body["tool_choice"] = {"type": "tool", "name": call.json_form.name}
        if config:
            body["output_config"] = config
        headers = await self._credentials()
        raw = self._client.messages.with_raw_response
        return await of_stainless(raw.create(**body, extra_headers=headers, extra_body=extra), anthropic)

    async def _credentials(self) -> dict[str, Any]:
        headers = dict(await self._headers())
        return (
            headers if "x-api-key" in map(str.lower, headers) else {"X-Api-Key": anthropic.Omit(), **headers}
        )

    def chat_completion(self, body: Any) -> Any:
        if body.get("type") == "error":
            return {"error": body.get("error") or "the response is an error"}
        content: list[dict[str, Any]] = []
        calls = []
        finish = body.get("stop_reason") or "end_turn"
        for block in body["content"]:
            if block["type"] in {"text", "thinking"}:
                content.append(block)
            elif block["type"] == "tool_use":
                calls.append({"function": {"name": block["name"], "input": block["input"]}})
        usage = body.get("usage")
        counts = None
        if usage:
            read = usage.get("cache_read_input_tokens") or 0
            written = usage.get("cache_creation_input_tokens") or 0
            counts = token_counts(
                usage["input_tokens"] + read + written,
                usage["output_tokens"],
                cached=read,
                reasoning=(usage.get("output_tokens_details") or {}).get("thinking_tokens", 0),
            )
        return completion(content, finish, model=body.get("model", ""), usage=counts, tool_calls=calls)

    async def models(self) -> Reply | Sequence[str]:
        raw = self._client.models.with_raw_response
        reply = await of_stainless(raw.list(limit=1000, extra_headers=await self._credentials()), anthropic)
        return reply if reply.status != 200 else [entry["id"] for entry in reply.body["data"]]

    async def close(self) -> None:
        await self._client.close()


def _content(message: Message) -> str | list[dict[str, Any]]:
    if not message.parts:
        return message.text
    return [
        {"type": "text", "text": one}
        if isinstance(one, str)
        else {
            "type": "image",
            "source": {"type": "base64", "media_type": one.media_type, "data": one.base64},
        }
        for one in message.contents
    ]
