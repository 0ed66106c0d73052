"""OpenAI's Responses API, and Azure's of that name, by the package ``openai``."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import openai
from pydantic_core import to_json

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
from services.generation.providers.parameters import Dialect, Parameter

_ENDPOINT: Final = "/v1/responses"
_MARK = "dramaturg_batch"
"""The metadata of a batch that has our id."""
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})

logger = logging.getLogger(__name__)


class ResponsesApi(Api, BatchApi):
    """The API. Responses are not stored at the endpoint."""

    kind = "openai"
    most_bytes = 100 << 20
    never = frozenset({Parameter.SEED, Parameter.STOP, Parameter.JSON_SCHEMA_LENGTHS})

    def __init__(self, connection: Connection) -> None:
        self.batches = self
        self._headers = connection.headers
        self._client = openai.AsyncOpenAI(**stainless(connection))

    def request(self, call: Call, dialect: Dialect) -> Body:
        """The body of the request for a call."""
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
        return {**body, **dialect.extra_body}

    async def send(self, call: Call, dialect: Dialect) -> Reply:
        headers = await self._credentials()
        body = self.request(call, replace(dialect, extra_body={}))
        raw = self._client.responses.with_raw_response
        return await of_stainless(
            raw.create(**body, extra_headers=headers, extra_body=dict(dialect.extra_body)), openai
        )

    async def submit(self, batch: str, requests: Mapping[str, Body]) -> str:
        headers = await self._credentials()
        lines = [
            to_json({"custom_id": key, "method": "POST", "url": _ENDPOINT, "body": body})
            for key, body in requests.items()
        ]
        file = f"{batch}.jsonl", b"\n".join(lines)
        uploaded = await self._made(
            self._client.files.with_raw_response.create(file=file, purpose="batch", extra_headers=headers)
        )
        made = await self._made(
            self._client.batches.with_raw_response.create(
                input_file_id=uploaded["id"],
                endpoint=_ENDPOINT,
                completion_window="24h",
                metadata={_MARK: batch},
                extra_headers=headers,
            )
        )
        return str(made["id"])

    async def find(self, batch: str, since: float, count: int) -> str:
        del count
        after: str | openai.Omit = openai.omit
        while True:
            listed = await self._made(
                self._client.batches.with_raw_response.list(
                    after=after, limit=100, extra_headers=await self._credentials()
                )
            )
            for one in listed["data"]:
                if (one.get("metadata") or {}).get(_MARK) == batch:
                    return str(one["id"])
            # The newest are listed first.
            if not listed.get("has_more") or listed["data"][-1]["created_at"] < since - CLOCKS_SECONDS:
                return ""
            after = listed["data"][-1]["id"]

    async def results(self, remote: str) -> Iterable[tuple[str, Reply]] | None:
        headers = await self._credentials()
        batch = await self._made(
            self._client.batches.with_raw_response.retrieve(remote, extra_headers=headers)
        )
        if batch["status"] not in _ENDED:
            return None
        if batch["status"] == "failed":
            problems = (batch.get("errors") or {}).get("data") or [{}]
            logger.warning("the batch %s failed: %s", remote, problems[0].get("message", "no reason stated"))
        return [
            (one["custom_id"], Reply(response["status_code"], {}, response["body"]))
            for name in ("output_file_id", "error_file_id")
            if batch.get(name)
            for one in await self._lines(batch[name], headers)
            # Without a response: it expired, or the batch was cancelled.
            if (response := one.get("response")) is not None
        ]

    async def cancel(self, remote: str) -> None:
        headers = await self._credentials()
        await self._made(self._client.batches.with_raw_response.cancel(remote, extra_headers=headers))

    async def _lines(self, file: str, headers: Mapping[str, Any]) -> list[Body]:
        content = await self._made(
            self._client.files.with_raw_response.content(file, extra_headers=dict(headers))
        )
        return json_lines(content)

    async def _made(self, request: Awaitable[Any]) -> Any:
        return accepted(await of_stainless(request, openai))

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
