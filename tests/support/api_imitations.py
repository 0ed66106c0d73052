"""Servers that speak the APIs of model providers: one for each kind of provider.

An imitation turns what a test wants answered into a response of its API, and a request of its API into what
was asked. Where a vendor's package has types for responses, every response is checked against them.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol, cast

from aiohttp import web

from tests.support.http_servers import serve_http

Body = dict[str, Any]
KEY = "key-of-the-test-1234"


@dataclass(frozen=True)
class Said:
    """An answer, apart from any API.

    Attributes:
        finish: ``stop``, ``length``, ``filter``, ``refusal``, ``tool`` or a reason of the API's own.
        tool: The input of the tool that the model calls, with ``finish`` ``tool``.
        counts: Prompt tokens, of them cached, output tokens, of them reasoning. None: none are stated.
        logprobs: Tokens with their log-probabilities.
    """

    text: str = "ready"
    thoughts: str = ""
    finish: str = "stop"
    tool: Body | None = None
    counts: tuple[int, int, int, int] | None = (10, 0, 4, 0)
    logprobs: Sequence[tuple[str, float]] = ()


@dataclass(frozen=True)
class Fault:
    """An error, in the words of a provider."""

    status: int
    message: str
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """A response of bytes."""

    content: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """A request, apart from any API."""

    model: str
    system: str
    messages: list[tuple[str, str]]
    images: list[tuple[str, bytes]]
    """The images, with their media types."""
    temperature: float | None
    top_p: float | None
    cap: int | None
    stop: list[str] | None
    seed: int | None
    effort: str | None
    schema: Body | None
    enforces_json: bool
    """Whether JSON is enforced without the schema: by a mode, or by the input of a tool."""
    logprobs: int | None
    """The number of alternatives; None where no log-probabilities are wanted."""
    marked: bool
    """Whether the instructions end with a mark of the prompt cache."""

    @property
    def chat(self) -> Body:
        """The same as a request for a chat completion, as far as scripted models read it."""
        messages = [("system", self.system), *self.messages]
        form = {"name": "form", "schema": self.schema}
        return {
            "messages": [{"role": role, "content": text} for role, text in messages],
            "response_format": {"type": "json_schema", "json_schema": form},
        }


Script = Callable[[Asked], "Said | Fault | Raw | asyncio.Event"]


def _messages(
    said: Sequence[tuple[str, Any]], picture: Callable[[Body], tuple[str, bytes] | None]
) -> tuple[list[tuple[str, str]], list[tuple[str, bytes]]]:
    """The texts of messages, those of one message together, and their images."""
    texts, images = [], []
    for role, content in said:
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        pictures = [picture(part) for part in parts]
        images += [one for one in pictures if one is not None]
        shown = (part["text"] for part, one in zip(parts, pictures, strict=True) if one is None)
        texts.append((role, "".join(shown)))
    return texts, images


def _of_url(url: str) -> tuple[str, bytes]:
    head, _, data = url.removeprefix("data:").partition(";base64,")
    return head, b64decode(data)


def _camel(value: Any) -> Any:
    """A body with names in camel case. Google reads JSON of protocol buffers: names have either spelling."""
    if isinstance(value, list):
        return [_camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    names = {name: re.sub("_(.)", lambda found: found[1].upper(), name) for name in value}
    return {
        names[name]: one if names[name].endswith("Schema") else _camel(one) for name, one in value.items()
    }


class Imitation(Protocol):
    """An API."""

    kind: str
    extra: str
    """The package that calls need."""
    path: str
    models_path: str
    lacks: frozenset[str]
    """The parameters that the API does not have."""
    refused_keywords: ClassVar[frozenset[str]] = frozenset()
    """The keywords for which the API refuses a schema, as its documentation says."""

    def answer(self, said: Said, asked: Asked) -> Body: ...

    def fault(self, fault: Fault) -> tuple[Body, Mapping[str, str]]: ...

    def asked(self, body: Body, request: web.Request) -> Asked: ...

    def listed(self, names: Sequence[str]) -> Body: ...


LENGTHS = frozenset({"minLength", "maxLength"})
RANGES = frozenset({"minimum", "maximum", "minItems", "maxItems"})


def keywords(schema: Any) -> set[str]:
    """All names of members in a schema."""
    if isinstance(schema, list):
        return set().union(*map(keywords, schema))
    return {*schema}.union(*map(keywords, schema.values())) if isinstance(schema, dict) else set()


def _error(fault: Fault) -> tuple[Body, Mapping[str, str]]:
    said = {
        "message": fault.message,
        "type": "invalid_request_error",
        "param": None,
        "code": fault.code or None,
    }
    return {"error": said}, {}


def _openai_models(names: Sequence[str]) -> Body:
    data = [{"id": name, "object": "model", "created": 1, "owned_by": "us"} for name in names]
    return {"object": "list", "data": data}


class Chat(Imitation):
    """Chat completions."""

    kind, extra, path, models_path = "chat", "openai", "/v1/chat/completions", "/v1/models"
    lacks: frozenset[str] = frozenset()
    _finish: ClassVar = {
        "filter": "content_filter",
        "refusal": "stop",
        "tool": "tool_calls",
    }

    def answer(self, said: Said, asked: Asked) -> Body:
        message: Body = {"role": "assistant", "content": said.text, "refusal": None}
        if said.thoughts:
            message["reasoning_content"] = said.thoughts
        if said.finish == "refusal":
            message |= {"content": None, "refusal": said.text}
        if said.tool is not None:
            message["tool_calls"] = [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps(said.tool)}}
            ]
        finish = self._finish.get(said.finish, said.finish)
        choice: Body = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        if said.logprobs:
            choice["logprobs"] = {"content": _openai_logprobs(said), "refusal": None}
        body: Body = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "m-1",
            "choices": [choice],
        }
        if said.counts:
            prompt, cached, output, reasoning = said.counts
            body["usage"] = {
                "prompt_tokens": prompt,
                "completion_tokens": output,
                "total_tokens": prompt + output,
                "prompt_tokens_details": {"cached_tokens": cached},
                "completion_tokens_details": {"reasoning_tokens": reasoning},
            }
        if finish in {"stop", "length", "content_filter", "tool_calls"}:
            from openai.types.chat import ChatCompletion

            ChatCompletion.model_validate(body)
        return body

    def fault(self, fault: Fault) -> tuple[Body, Mapping[str, str]]:
        return _error(fault)

    def asked(self, body: Body, request: web.Request) -> Asked:
        form = body.get("response_format") or {}
        system = [message["content"] for message in body["messages"] if message["role"] == "system"]
        return Asked(
            body["model"],
            "\n\n".join(system),
            *_messages(
                [(said["role"], said["content"]) for said in body["messages"] if said["role"] != "system"],
                lambda part: _of_url(part["image_url"]["url"]) if part["type"] == "image_url" else None,
            ),
            body.get("temperature"),
            body.get("top_p"),
            body.get("max_tokens", body.get("max_completion_tokens")),
            body.get("stop"),
            body.get("seed"),
            body.get("reasoning_effort"),
            form["json_schema"]["schema"] if form.get("type") == "json_schema" else None,
            form.get("type") == "json_object",
            body.get("top_logprobs", 0) if body.get("logprobs") else None,
            False,
        )

    def listed(self, names: Sequence[str]) -> Body:
        return _openai_models(names)


def _openai_logprobs(said: Said) -> list[Body]:
    return [
        {
            "token": token,
            "bytes": list(token.encode()),
            "logprob": value,
            "top_logprobs": [{"token": token, "bytes": list(token.encode()), "logprob": value}],
        }
        for token, value in said.logprobs
    ]


class Responses(Imitation):
    """OpenAI's Responses API."""

    kind, extra, path, models_path = "openai", "openai", "/v1/responses", "/v1/models"
    lacks = frozenset({"seed", "stop"})
    refused_keywords = LENGTHS

    def answer(self, said: Said, asked: Asked) -> Body:
        content: Body = {"type": "output_text", "text": said.text, "annotations": []}
        if said.logprobs:
            content["logprobs"] = _openai_logprobs(said)
        if said.finish == "refusal":
            content = {"type": "refusal", "refusal": said.text}
        output: list[Body] = []
        if said.thoughts:
            summary = [{"type": "summary_text", "text": said.thoughts}]
            output.append({"id": "r", "type": "reasoning", "summary": summary})
        if said.tool is not None:
            arguments = json.dumps(said.tool)
            output.append({"type": "function_call", "call_id": "1", "name": "f", "arguments": arguments})
        elif said.text:
            message = {"id": "1", "type": "message", "role": "assistant", "status": "completed"}
            output.append({**message, "content": [content]})
        reasons = {"length": "max_output_tokens", "filter": "content_filter"}
        known = said.finish in {"stop", "refusal", "tool"}
        body: Body = {
            "id": "1",
            "object": "response",
            "created_at": 1.0,
            "model": "m-1",
            "status": "completed" if known else "incomplete",
            "incomplete_details": None if known else {"reason": reasons.get(said.finish, said.finish)},
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
        if said.counts:
            prompt, cached, tokens, reasoning = said.counts
            body["usage"] = {
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
                "output_tokens": tokens,
                "output_tokens_details": {"reasoning_tokens": reasoning},
                "total_tokens": prompt + tokens,
            }
        if known or said.finish in reasons:
            from openai.types.responses import Response

            Response.model_validate(body)
        return body

    def fault(self, fault: Fault) -> tuple[Body, Mapping[str, str]]:
        return _error(fault)

    def asked(self, body: Body, request: web.Request) -> Asked:
        form = (body.get("text") or {}).get("format") or {}
        wants = "message.output_text.logprobs" in body.get("include", ())
        return Asked(
            body["model"],
            body.get("instructions", ""),
            *_messages(
                [(said["role"], said["content"]) for said in body["input"]],
                lambda part: _of_url(part["image_url"]) if part["type"] == "input_image" else None,
            ),
            body.get("temperature"),
            body.get("top_p"),
            body.get("max_output_tokens"),
            body.get("stop"),
            body.get("seed"),
            (body.get("reasoning") or {}).get("effort"),
            form["schema"] if form.get("type") == "json_schema" else None,
            form.get("type") == "json_object",
            body.get("top_logprobs", 0) if wants else None,
            False,
        )

    def listed(self, names: Sequence[str]) -> Body:
        return _openai_models(names)


class Messages(Imitation):
    """Anthropic's Messages API."""

    kind, extra, path, models_path = "anthropic", "anthropic", "/v1/messages", "/v1/models"
    lacks = frozenset({"seed", "logprobs", "top_logprobs"})
    refused_keywords = LENGTHS | RANGES
    _finish: ClassVar = {
        "stop": "end_turn",
        "length": "max_tokens",
        "filter": "content_filter",
        "tool": "tool_use",
    }

    def answer(self, said: Said, asked: Asked) -> Body:
        content: list[Body] = []
        if said.thoughts:
            content.append({"type": "thinking", "thinking": said.thoughts, "signature": "s"})
        if said.tool is not None:
            content.append({"type": "tool_use", "id": "1", "name": "verdict", "input": said.tool})
        elif said.text:
            content.append({"type": "text", "text": said.text, "citations": None})
        body: Body = {
            "id": "1",
            "type": "message",
            "role": "assistant",
            "model": "m-1",
            "content": content,
            "stop_reason": self._finish.get(said.finish, said.finish),
            "stop_sequence": None,
        }
        if said.counts:
            prompt, cached, output, reasoning = said.counts
            body["usage"] = {
                "input_tokens": prompt - cached,
                "cache_read_input_tokens": cached,
                "cache_creation_input_tokens": 0,
                "output_tokens": output,
                "output_tokens_details": {"thinking_tokens": reasoning},
            }
            if body["stop_reason"] in {"end_turn", "max_tokens", "tool_use", "refusal"}:
                from anthropic.types import Message

                Message.model_validate(body)
        return body

    def fault(self, fault: Fault) -> tuple[Body, Mapping[str, str]]:
        kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
        kind = kinds.get(fault.status, fault.code or "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": fault.message}, "request_id": "1"}, {}

    def asked(self, body: Body, request: web.Request) -> Asked:
        config = body.get("output_config") or {}
        blocks = body.get("system") or []
        tools = body.get("tools") or []
        assert body["max_tokens"] > 0
        return Asked(
            body["model"],
            "".join(block["text"] for block in blocks),
            *_messages(
                [(said["role"], said["content"]) for said in body["messages"]],
                lambda part: (
                    (part["source"]["media_type"], b64decode(part["source"]["data"]))
                    if part["type"] == "image"
                    else None
                ),
            ),
            body.get("temperature"),
            body.get("top_p"),
            None if body["max_tokens"] == 4096 else body["max_tokens"],
            body.get("stop_sequences"),
            body.get("seed"),
            config.get("effort"),
            (config.get("format") or {}).get("schema"),
            bool(tools) and body.get("tool_choice") == {"type": "tool", "name": tools[0]["name"]},
            None,
            any(block.get("cache_control") == {"type": "ephemeral"} for block in blocks),
        )

    def listed(self, names: Sequence[str]) -> Body:
        data = [
            {"id": name, "type": "model", "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
            for name in names
        ]
        return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}


class Gemini(Imitation):
    """Google's Gemini API."""

    kind, extra = "google", "google.genai"
    path, models_path = "/v1/models/{model}:generateContent", "/v1/models"
    lacks: frozenset[str] = frozenset()
    refused_keywords = LENGTHS
    _finish: ClassVar = {
        "stop": "STOP",
        "length": "MAX_TOKENS",
        "filter": "SAFETY",
        "tool": "STOP",
    }

    def answer(self, said: Said, asked: Asked) -> Body:
        parts: list[Body] = []
        if said.thoughts:
            parts.append({"text": said.thoughts, "thought": True})
        if said.tool is not None:
            parts.append({"functionCall": {"name": "f", "args": said.tool}})
        elif said.text:
            parts.append({"text": said.text})
        candidate: Body = {
            "index": 0,
            "content": {"role": "model", "parts": parts},
            "finishReason": self._finish.get(said.finish, said.finish.upper()),
        }
        if said.logprobs:
            chosen = [{"token": token, "logProbability": value} for token, value in said.logprobs]
            top = [{"candidates": [token]} for token in chosen]
            candidate["logprobsResult"] = {"chosenCandidates": chosen, "topCandidates": top}
        body: Body = {"candidates": [candidate], "modelVersion": "m-1", "responseId": "1"}
        if said.counts:
            prompt, cached, output, reasoning = said.counts
            body["usageMetadata"] = {
                "promptTokenCount": prompt,
                "cachedContentTokenCount": cached,
                "candidatesTokenCount": output - reasoning,
                "thoughtsTokenCount": reasoning,
                "totalTokenCount": prompt + output,
            }
        from google.genai.types import GenerateContentResponse

        GenerateContentResponse.model_validate(body)
        return body

    def fault(self, fault: Fault) -> tuple[Body, Mapping[str, str]]:
        names = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
        status = fault.code or names.get(fault.status, "INTERNAL")
        return {"error": {"code": fault.status, "message": fault.message, "status": status}}, {}

    def asked(self, body: Body, request: web.Request) -> Asked:
        body = _camel(body)
        config = body.get("generationConfig") or {}
        system = (body.get("systemInstruction") or {}).get("parts") or ()
        schema = config.get("responseJsonSchema")
        roles = {"model": "assistant"}
        level = (config.get("thinkingConfig") or {}).get("thinkingLevel")
        return Asked(
            request.match_info["model"],
            "".join(part["text"] for part in system),
            *_messages(
                [(roles.get(said["role"], said["role"]), said["parts"]) for said in body["contents"]],
                lambda part: (
                    (blob["mimeType"], b64decode(blob["data"], altchars="-_"))
                    if (blob := part.get("inlineData"))
                    else None
                ),
            ),
            config.get("temperature"),
            config.get("topP"),
            config.get("maxOutputTokens"),
            config.get("stopSequences"),
            config.get("seed"),
            level.lower() if level else None,
            schema,
            config.get("responseMimeType") == "application/json" and schema is None,
            config.get("logprobs", 0) if config.get("responseLogprobs") else None,
            False,
        )

    def listed(self, names: Sequence[str]) -> Body:
        return {"models": [{"name": f"models/{name}"} for name in names]}


class Converse(Imitation):
    """Converse of Amazon Bedrock."""

    kind, extra = "bedrock", "boto3"
    path, models_path = "/model/{model}/converse", "/foundation-models"
    lacks = frozenset({"seed", "logprobs", "top_logprobs"})
    refused_keywords = LENGTHS | RANGES
    _finish: ClassVar = {
        "stop": "end_turn",
        "length": "max_tokens",
        "filter": "content_filtered",
        "tool": "tool_use",
    }

    def answer(self, said: Said, asked: Asked) -> Body:
        content: list[Body] = []
        if said.thoughts:
            thought = {"text": said.thoughts, "signature": "s"}
            content.append({"reasoningContent": {"reasoningText": thought}})
        if said.tool is not None:
            content.append({"toolUse": {"toolUseId": "1", "name": "verdict", "input": said.tool}})
        elif said.text:
            content.append({"text": said.text})
        body: Body = {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": self._finish.get(said.finish, said.finish),
            "metrics": {"latencyMs": 1},
        }
        if said.counts:
            prompt, cached, output, _ = said.counts
            body["usage"] = {
                "inputTokens": prompt - cached,
                "outputTokens": output,
                "totalTokens": prompt + output,
                "cacheReadInputTokens": cached,
                "cacheWriteInputTokens": 0,
            }
        return body

    def fault(self, fault: Fault) -> tuple[Body, Mapping[str, str]]:
        names = {
            400: "ValidationException",
            401: "UnrecognizedClientException",
            404: "ResourceNotFoundException",
            408: "ModelTimeoutException",
            429: "ThrottlingException",
            503: "ServiceUnavailableException",
        }
        name = fault.code or names.get(fault.status, "InternalServerException")
        return {"message": fault.message}, {"x-amzn-ErrorType": name}

    def asked(self, body: Body, request: web.Request) -> Asked:
        config = body.get("inferenceConfig") or {}
        output = body.get("outputConfig") or {}
        form = ((output.get("textFormat") or {}).get("structure") or {}).get("jsonSchema")
        blocks = body.get("system") or []
        tools = (body.get("toolConfig") or {}).get("tools") or []
        return Asked(
            request.match_info["model"],
            "".join(block.get("text", "") for block in blocks),
            *_messages(
                [(said["role"], said["content"]) for said in body["messages"]],
                lambda part: (
                    (f"image/{part['image']['format']}", b64decode(part["image"]["source"]["bytes"]))
                    if "image" in part
                    else None
                ),
            ),
            config.get("temperature"),
            config.get("topP"),
            config.get("maxTokens"),
            config.get("stopSequences"),
            None,
            output.get("effort"),
            json.loads(form["schema"]) if form else None,
            bool(tools) and "tool" in body["toolConfig"].get("toolChoice", {}),
            None,
            {"cachePoint": {"type": "default"}} in blocks,
        )

    def listed(self, names: Sequence[str]) -> Body:
        return {
            "modelSummaries": [{"modelId": name, "modelArn": f"arn:aws:bedrock:::{name}"} for name in names],
            "inferenceProfileSummaries": [],
        }


IMITATIONS: Mapping[str, Imitation] = {
    imitation.kind: imitation for imitation in (Chat(), Responses(), Messages(), Gemini(), Converse())
}


@dataclass
class ImitationServer:
    """A server of one API, and what it was asked."""

    imitation: Imitation
    script: Script
    base_url: str = ""
    asked: list[Asked] = field(default_factory=list)
    batched: list[Asked] = field(default_factory=list)
    """Those of ``asked`` that batches asked."""
    bodies: list[Body] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether a client left before its answer."""
    names: Sequence[str] = ("m", "another")
    listing: Fault | None = None
    batches: Batches | None = None

    @property
    def settings(self) -> Body:
        """The settings of a provider for it, without the key."""
        version = "/v1" if self.imitation.kind in {"chat", "openai"} else ""
        made: Body = {"kind": self.imitation.kind, "base_url": self.base_url + version, "default_model": "m"}
        return made | ({"region": "us-east-1"} if self.imitation.kind == "bedrock" else {})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answers a request by the script."""
        body = await request.json()
        asked = self.imitation.asked(body, request)
        self.bodies.append(body)
        self.headers.append(request.headers)
        self.asked.append(asked)
        said = self._said(asked)
        if isinstance(said, asyncio.Event):
            try:
                await said.wait()
            except asyncio.CancelledError:
                self.gone.set()
                raise
            said = Said()
        if isinstance(said, Raw):
            if said.status == 0:
                assert request.transport is not None
                request.transport.abort()
            return web.Response(body=said.content, status=said.status or 200, headers=said.headers)
        return self._respond(said, asked)

    def answer_of(self, body: Body) -> tuple[int, Body]:
        """The status and body of the answer to a request of a batch."""
        request = SimpleNamespace(match_info={"model": body.get("model")})
        asked = self.imitation.asked(body, cast("web.Request", request))
        self.asked.append(asked)
        self.batched.append(asked)
        said = self._said(asked)
        if isinstance(said, Fault):
            return said.status, self.imitation.fault(said)[0]
        assert isinstance(said, Said)
        return 200, self.imitation.answer(said, asked)

    def _said(self, asked: Asked) -> Said | Fault | Raw | asyncio.Event:
        refused = keywords(asked.schema) & self.imitation.refused_keywords
        if refused:
            return Fault(400, f"Invalid schema for response_format: '{min(refused)}' is not permitted.")
        return self.script(asked)

    def _respond(self, said: Said | Fault, asked: Asked) -> web.Response:
        if isinstance(said, Fault):
            body, headers = self.imitation.fault(said)
            return web.json_response(body, status=said.status, headers={**headers, **said.headers})
        return web.json_response(self.imitation.answer(said, asked))

    async def models(self, request: web.Request) -> web.Response:
        """Lists the models."""
        self.headers.append(request.headers)
        if self.listing is not None:
            body, headers = self.imitation.fault(self.listing)
            return web.json_response(body, status=self.listing.status, headers=headers)
        return web.json_response(self.imitation.listed(self.names))


@dataclass
class Batches(ABC):
    """The batches of an API, beside the answers of a server.

    Attributes:
        answers: Answers a request of a batch: the status and the body.
        holds: Whether batches go on until they are cancelled.
        expires: A text of the requests that have no answer in time. Empty: all have one.
        drops: Whether a batch is made and the response to its creation is lost.
        loses: Whether requests to make a batch are lost.
        failed: Why the next batches fail as a whole. Empty: they do not.
        batches: The batches by their ids.
    """

    answers: Callable[[Body], tuple[int, Body]]
    holds: bool = False
    expires: str = ""
    drops: bool = False
    loses: bool = False
    failed: str = ""
    losses: int = 0
    """How many requests to make a batch were lost."""
    batches: dict[str, Body] = field(default_factory=dict)
    requests: dict[str, list[tuple[str, Body]]] = field(default_factory=dict)
    """The keys and bodies of the requests of each batch."""

    @property
    def created(self) -> list[list[str]]:
        """The keys of the requests of each batch."""
        return [[key for key, _ in requests] for requests in self.requests.values()]

    @property
    def cancelled(self) -> list[bool]:
        """Whether each batch was cancelled."""
        return [bool(batch.get("was_cancelled")) for batch in self.batches.values()]

    @abstractmethod
    def routes(self) -> list[web.RouteDef]:
        """The paths of the API."""

    def _make(
        self, request: web.Request, number: str, batch: Body, requests: list[tuple[str, Body]]
    ) -> web.Response:
        self.batches[number] = batch
        self.requests[number] = requests
        if self.drops:
            _abort(request)
        return web.json_response(batch)

    def _outcomes(self, number: str, most: int | None = None) -> list[tuple[str, int, Body]]:
        """The key, status and body of each answer; the status is 0 where there is none in time."""
        found = []
        for place, (key, body) in enumerate(self.requests[number]):
            late = (self.expires and self.expires in json.dumps(body)) or place >= (most or 10**6)
            found.append((key, 0, {}) if late else (key, *self.answers(body)))
        return found


def _abort(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


@dataclass
class OpenAIBatches(Batches):
    """The files and batches of OpenAI."""

    endpoint: str = "/v1/responses"
    files: dict[str, str] = field(default_factory=dict)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/files", self._upload),
            web.get("/v1/files/{id}/content", self._content),
            web.post("/v1/batches", self._create),
            web.get("/v1/batches", self._list),
            web.get("/v1/batches/{id}", self._retrieve),
            web.post("/v1/batches/{id}/cancel", self._cancel),
        ]

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["purpose"] == "batch"
        uploaded = form["file"]
        assert isinstance(uploaded, web.FileField)
        return web.json_response({"id": self._keep(uploaded.file.read().decode()), "object": "file"})

    def _keep(self, content: str) -> str:
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return name

    async def _content(self, request: web.Request) -> web.Response:
        return web.Response(text=self.files[request.match_info["id"]])

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.loses:
            self.losses += 1
            _abort(request)
            return web.Response()
        assert (body["endpoint"], body["completion_window"]) == (self.endpoint, "24h")
        lines = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
        assert all((line["method"], line["url"]) == ("POST", self.endpoint) for line in lines)
        batch = {
            "id": f"batch_{len(self.batches)}",
            "object": "batch",
            "endpoint": self.endpoint,
            "input_file_id": body["input_file_id"],
            "completion_window": "24h",
            "status": "failed" if self.failed else "in_progress",
            "errors": {"object": "list", "data": [{"code": "x", "message": self.failed}]},
            "created_at": int(time.time()),
            "metadata": body["metadata"],
        }
        from openai.types import Batch

        Batch.model_validate(batch)
        return self._make(request, batch["id"], batch, [(line["custom_id"], line["body"]) for line in lines])

    async def _list(self, request: web.Request) -> web.Response:
        del request
        return web.json_response(
            {"object": "list", "data": [*reversed(self.batches.values())], "has_more": False}
        )

    async def _retrieve(self, request: web.Request) -> web.Response:
        batch = self.batches[request.match_info["id"]]
        if batch["status"] == "in_progress" and not self.holds:
            self._end(batch, "expired" if self.expires else "completed")
        return web.json_response(batch)

    async def _cancel(self, request: web.Request) -> web.Response:
        batch = self.batches[request.match_info["id"]]
        # What was answered before is kept: the first request.
        self._end(batch, "cancelled", 1)
        batch["was_cancelled"] = True
        return web.json_response(batch)

    def _end(self, batch: Body, status: str, most: int | None = None) -> None:
        output: list[str] = []
        errors: list[str] = []
        for key, code, body in self._outcomes(batch["id"], most):
            made: Body = {"id": "r", "custom_id": key, "response": None, "error": None}
            if code:
                made["response"] = {"status_code": code, "request_id": "r", "body": body}
            else:
                made["error"] = {"code": "batch_expired", "message": "not answered in time"}
            (output if code == 200 else errors).append(json.dumps(made))
        batch["status"] = status
        for name, lines in (("output_file_id", output), ("error_file_id", errors)):
            if lines:
                batch[name] = self._keep("\n".join(lines) + "\n")


@dataclass
class AnthropicBatches(Batches):
    """The message batches of Anthropic."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/messages/batches", self._create),
            web.get("/v1/messages/batches", self._list),
            web.get("/v1/messages/batches/{id}", self._retrieve),
            web.get("/v1/messages/batches/{id}/results", self._results),
            web.post("/v1/messages/batches/{id}/cancel", self._cancel),
        ]

    async def _create(self, request: web.Request) -> web.Response:
        assert request.headers["X-Api-Key"] == KEY
        body = await request.json()
        if self.loses:
            self.losses += 1
            _abort(request)
            return web.Response()
        asked = [(one["custom_id"], one["params"]) for one in body["requests"]]
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", key) for key, _ in asked)
        assert len({key for key, _ in asked}) == len(asked)
        now = datetime.now(UTC)
        counts = dict.fromkeys(("canceled", "errored", "expired", "succeeded"), 0)
        batch = {
            "id": f"msgbatch_{len(self.batches)}",
            "type": "message_batch",
            "processing_status": "in_progress",
            "request_counts": {"processing": len(asked), **counts},
            "created_at": now.isoformat(),
            "expires_at": (now + timedelta(days=1)).isoformat(),
            "results_url": None,
        }
        from anthropic.types.messages import MessageBatch

        MessageBatch.model_validate(batch)
        return self._make(request, str(batch["id"]), batch, asked)

    async def _list(self, request: web.Request) -> web.Response:
        assert request.headers["X-Api-Key"] == KEY
        for batch in self.batches.values():
            self._advance(batch)
        data = [*reversed(self.batches.values())]
        last = data[-1]["id"] if data else None
        return web.json_response({"data": data, "has_more": False, "first_id": None, "last_id": last})

    async def _retrieve(self, request: web.Request) -> web.Response:
        batch = self.batches[request.match_info["id"]]
        self._advance(batch)
        return web.json_response(batch)

    def _advance(self, batch: Body) -> None:
        if batch["processing_status"] == "in_progress" and not self.holds:
            self._end(batch, "expired")

    async def _cancel(self, request: web.Request) -> web.Response:
        batch = self.batches[request.match_info["id"]]
        self._end(batch, "canceled", 1)
        batch["was_cancelled"] = True
        return web.json_response(batch)

    def _end(self, batch: Body, without: str, most: int | None = None) -> None:
        lines = []
        for key, code, body in self._outcomes(batch["id"], most):
            result: Body = {"type": without}
            if code:
                result = {"type": "errored", "error": body}
                if code == 200:
                    result = {"type": "succeeded", "message": body}
            lines.append(json.dumps({"custom_id": key, "result": result}))
        batch["processing_status"] = "ended"
        batch["request_counts"] |= {"processing": 0, "succeeded": len(lines)}
        batch["results"] = "\n".join(lines)

    async def _results(self, request: web.Request) -> web.Response:
        assert request.headers["X-Api-Key"] == KEY
        return web.Response(text=self.batches[request.match_info["id"]]["results"])


@dataclass
class GeminiBatches(Batches):
    """The batches of Gemini, whose requests are in the request that makes them."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/models/{model}:batchGenerateContent", self._create),
            web.get("/v1/batches", self._list),
            web.get("/v1/batches/{id}", self._retrieve),
            web.post("/v1/batches/{id}:cancel", self._cancel),
        ]

    async def _create(self, request: web.Request) -> web.Response:
        assert request.headers["X-Goog-Api-Key"] == KEY
        body = (await request.json())["batch"]
        if self.loses:
            self.losses += 1
            _abort(request)
            return web.Response()
        asked = [
            (one["metadata"]["key"], {**one["request"], "model": request.match_info["model"]})
            for one in body["inputConfig"]["requests"]["requests"]
        ]
        number = str(len(self.batches))
        state = "BATCH_STATE_FAILED" if self.failed else "BATCH_STATE_RUNNING"
        metadata = {
            "displayName": body["displayName"],
            "state": state,
            "createTime": datetime.now(UTC).isoformat(),
        }
        return self._make(request, number, {"name": f"batches/{number}", "metadata": metadata}, asked)

    async def _list(self, request: web.Request) -> web.Response:
        assert request.headers["X-Goog-Api-Key"] == KEY
        return web.json_response({"operations": [*reversed(self.batches.values())]})

    async def _retrieve(self, request: web.Request) -> web.Response:
        number = request.match_info["id"]
        batch = self.batches[number]
        if batch["metadata"]["state"] == "BATCH_STATE_RUNNING" and not self.holds:
            self._end(number, "BATCH_STATE_SUCCEEDED")
        return web.json_response(batch)

    async def _cancel(self, request: web.Request) -> web.Response:
        number = request.match_info["id"]
        self._end(number, "BATCH_STATE_CANCELLED", 1)
        self.batches[number]["was_cancelled"] = True
        return web.json_response({})

    def _end(self, number: str, state: str, most: int | None = None) -> None:
        responses = []
        for key, code, body in self._outcomes(number, most):
            made: Body = {"metadata": {"key": key}}
            if code == 200:
                made["response"] = body
            else:
                made["error"] = {"code": 4, "message": "not answered"}
            responses.append(made)
        metadata = self.batches[number]["metadata"]
        metadata |= {"state": state, "output": {"inlinedResponses": {"inlinedResponses": responses}}}


BATCHES: Mapping[str, type[Batches]] = {
    "openai": OpenAIBatches,
    "anthropic": AnthropicBatches,
    "google": GeminiBatches,
}
"""The kinds of provider that have batches."""


@asynccontextmanager
async def imitate(kind: str, script: Script, port: int = 0) -> AsyncIterator[ImitationServer]:
    """Serves the API of a kind of provider on a port of this machine; 0 takes a free one."""
    imitation = IMITATIONS[kind]
    server = ImitationServer(imitation, script)
    routes = [web.post(imitation.path, server.answer), web.get(imitation.models_path, server.models)]
    if kind in BATCHES:
        server.batches = BATCHES[kind](server.answer_of)
        routes += server.batches.routes()
    routes.append(web.get("/inference-profiles", server.models))
    async with serve_http(*routes, port=port, cancelled=True) as server.base_url:
        yield server
