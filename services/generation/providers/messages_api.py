"""Anthropic's Messages API, by the package ``anthropic``."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import anthropic
import httpx2

from services.generation.calls import Call, Message
from services.generation.providers.packages import (
    CLOCKS_SECONDS,
    Api,
    BatchApi,
    Body,
    Connection,
    Reply,
    accepted,
    completion,
    conversation,
    effort,
    json_lines,
    of_stainless,
    sampling,
    schema,
    stainless,
    token_counts,
    wants_object,
)
from services.generation.providers.parameters import SCHEMA_BOUNDS, Dialect, Parameter

DEFAULT_OUTPUT_TOKENS = 4096
"""The cap where neither the call nor the settings state one: the API requires one."""


KEY_LENGTH = 48
"""The characters of a request's key in its id, which has at most 64."""


def _custom_id(batch: str, key: str) -> str:
    """The id of a request in a batch, which tells the batch, too."""
    return f"{batch[:15]}_{key[:KEY_LENGTH]}"


class MessagesApi(Api, BatchApi):
    """The API.

    A schema is an output format; where a model has none, the input of a tool that the model must call.
    """

    kind = "anthropic"
    most_bytes = 100 << 20
    key_length = KEY_LENGTH
    never = frozenset({Parameter.SEED, Parameter.LOGPROBS, Parameter.TOP_LOGPROBS, *SCHEMA_BOUNDS})

    def __init__(self, connection: Connection) -> None:
        self.batches = self
        self._headers = connection.headers
        self._client = anthropic.AsyncAnthropic(**stainless(connection))

    def request(self, call: Call, dialect: Dialect) -> Body:
        """The body of the request for a call."""
        instructions, messages = conversation(call, dialect)
        body: dict[str, Any] = {
            "model": call.model,
            "max_tokens": dialect.output_tokens(call) or DEFAULT_OUTPUT_TOKENS,
            "messages": [{"role": message.role.value, "content": _content(message)} for message in messages],
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
        stated = sampling(call, dialect, temperature="temperature", top_p="top_p", stop="stop_sequences")
        return {**body, **stated, **dialect.extra_body}

    async def send(self, call: Call, dialect: Dialect) -> Reply:
        headers = await self._credentials()
        body = self.request(call, replace(dialect, extra_body={}))
        # The package has no arguments for temperature and top_p, which only older models take.
        extra: Body = {name: body.pop(name) for name in ("temperature", "top_p") if name in body}
        extra |= dialect.extra_body
        raw = self._client.messages.with_raw_response
        return await of_stainless(raw.create(**body, extra_headers=headers, extra_body=extra), anthropic)

    async def submit(self, batch: str, requests: Mapping[str, Body]) -> str:
        made = await self._made(
            self._client.messages.batches.with_raw_response.create(
                requests=[
                    {"custom_id": _custom_id(batch, key), "params": cast("Any", body)}
                    for key, body in requests.items()
                ],
                extra_headers=await self._credentials(),
            )
        )
        return str(made["id"])

    async def find(self, batch: str, since: float, count: int) -> str | None:
        # Batches have no metadata: the keys in their results tell whose they are.
        headers = await self._credentials()
        after: str | anthropic.Omit = anthropic.omit
        unknown = False
        while True:
            listed = await self._made(
                self._client.messages.batches.with_raw_response.list(
                    after_id=after, limit=100, extra_headers=headers
                )
            )
            for one in listed["data"]:
                if datetime.fromisoformat(one["created_at"]).timestamp() < since - CLOCKS_SECONDS:
                    return None if unknown else ""
                if sum(one["request_counts"].values()) != count:
                    continue
                if one["processing_status"] != "ended":
                    unknown = True
                elif (await self._results(one["id"]))[0]["custom_id"].startswith(_custom_id(batch, "")):
                    return str(one["id"])
            if not listed.get("has_more"):
                return None if unknown else ""
            after = listed["last_id"]

    async def results(self, remote: str) -> Iterable[tuple[str, Reply]] | None:
        headers = await self._credentials()
        batch = await self._made(
            self._client.messages.batches.with_raw_response.retrieve(remote, extra_headers=headers)
        )
        if batch["processing_status"] != "ended":
            return None
        return [
            (one["custom_id"].partition("_")[2], Reply(200, {}, one["result"]["message"]))
            for one in await self._results(remote)
            # Others failed, expired or were cancelled.
            if one["result"]["type"] == "succeeded"
        ]

    async def cancel(self, remote: str) -> None:
        headers = await self._credentials()
        await self._made(
            self._client.messages.batches.with_raw_response.cancel(remote, extra_headers=headers)
        )

    async def _results(self, remote: str) -> list[Body]:
        # The method of the package asks for the batch again, without the credentials of the request.
        path, headers = f"/v1/messages/batches/{remote}/results", await self._credentials()

        async def get() -> Any:
            response = await self._client.get(path, cast_to=httpx2.Response, options={"headers": headers})
            return SimpleNamespace(http_response=response)

        return json_lines(await self._made(get()))

    async def _made(self, request: Awaitable[Any]) -> Any:
        return accepted(await of_stainless(request, anthropic))

    async def _credentials(self) -> dict[str, Any]:
        headers = dict(await self._headers())
        given = set(map(str.lower, headers))
        # The package sends its own key in either header.
        own = ("Authorization", "X-Api-Key")
        return {**{name: anthropic.Omit() for name in own if name.lower() not in given}, **headers}

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
