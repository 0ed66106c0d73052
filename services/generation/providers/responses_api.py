"""OpenAI's Responses API, and Azure's of that name, by the package ``openai``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import openai

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


class ResponsesApi(Api):
    """The API. Responses are not stored at the endpoint."""

    kind = "openai"
    never = frozenset({Parameter.SEED, Parameter.STOP})

    def __init__(self, connection: Connection) -> None:
        self._headers = connection.headers
        self._client = openai.AsyncOpenAI(**stainless(connection))

    async def send(self, call: Call, dialect: Dialect) -> Reply:
        instructions, messages = conversation(call, dialect)
        body: dict[str, Any] = {
            "model": call.model,
            "input": [{"role": message.role.value, "content": _content(message)} for message in messages],
            "store": False,
            **sampling(call, dialect, temperature="temperature", top_p="top_p", stop="", seed=""),
        }
        if instructions:
            body["instructions"] = instructions
        cap = dialect.output_tokens(call)
        if cap is not None:
            body["max_output_tokens"] = cap
        if effort(call, dialect):
            body["reasoning"] = {"effort": effort(call, dialect)}
        form = schema(call, dialect)
        if form is not None:
            described = {"name": form.name, "schema": json.loads(form.text), "strict": form.is_strict}
            body["text"] = {"format": {"type": "json_schema", **described}}
        elif wants_object(call, dialect):
            body["text"] = {"format": {"type": "json_object"}}
        if call.logprobs and Parameter.LOGPROBS not in dialect.omit:
            body["include"] = ["message.output_text.logprobs"]
            if call.top_logprobs and Parameter.TOP_LOGPROBS not in dialect.omit:
                most = dialect.most_top_logprobs or call.top_logprobs
                body["top_logprobs"] = min(call.top_logprobs, most)
        headers = await self._credentials()
        raw = self._client.responses.with_raw_response
        return await of_stainless(
            raw.create(**body, extra_headers=headers, extra_body=dict(dialect.extra_body)), openai
        )

    async def _credentials(self) -> dict[str, Any]:
        headers = dict(await self._headers())
        named = any(name.lower() == "authorization" for name in headers)
        return headers if named else {"Authorization": openai.Omit(), **headers}

    def chat_completion(self, body: Any) -> Any:
        if body.get("status") == "failed" or body.get("error"):
            return {"error": body.get("error") or "the response failed"}
        content: list[dict[str, Any]] = []
        logprobs: list[Any] = []
        calls = []
        refusal = ""
        for item in body["output"]:
            if item["type"] == "reasoning":
                parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
                content += [{"type": "reasoning", "text": part["text"]} for part in parts]
            elif item["type"] == "message":
                for part in item["content"]:
                    refusal += part.get("refusal") or ""
                    if part["type"] == "output_text":
                        content.append({"type": "text", "text": part["text"]})
                        logprobs += part.get("logprobs") or ()
            elif item["type"].endswith("_call"):
                calls.append({"function": {"name": item.get("name", item["type"])}})
        finish = body.get("status") or "completed"
        if finish == "incomplete":
            finish = (body.get("incomplete_details") or {}).get("reason") or finish
        usage = body.get("usage") or {}
        counts = None
        if usage:
            counts = token_counts(
                usage["input_tokens"],
                usage["output_tokens"],
                cached=(usage.get("input_tokens_details") or {}).get("cached_tokens", 0),
                reasoning=(usage.get("output_tokens_details") or {}).get("reasoning_tokens", 0),
            )
        return completion(
            content,
            finish,
            model=body.get("model", ""),
            usage=counts,
            logprobs=logprobs,
            refusal=refusal,
            tool_calls=calls,
        )

    async def models(self) -> Reply | Sequence[str]:
        raw = self._client.models.with_raw_response
        reply = await of_stainless(raw.list(extra_headers=await self._credentials()), openai)
        return reply if reply.status != 200 else [entry["id"] for entry in reply.body["data"]]

    async def close(self) -> None:
        await self._client.close()


def _content(message: Message) -> str | list[dict[str, Any]]:
    """A text, or the parts of a message of the user."""
    if not message.images:
        return message.texts
    return [
        {"type": "input_text", "text": one}
        if isinstance(one, str)
        else {"type": "input_image", "detail": "auto", "image_url": one.data_url}
        for one in message.contents
    ]
