"""Google's Gemini API, and Vertex AI, by the package ``google-genai``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Awaitable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from google import genai
from google.auth import exceptions as auth
from google.genai import errors, types
from pydantic_core import to_json

from services.generation.calls import Call, Image, Role
from services.generation.providers.packages import (
    Api,
    BatchApi,
    Body,
    Connection,
    NoResponseError,
    RefusedError,
    Reply,
    completion,
    conversation,
    effort,
    no_response,
    sampling,
    schema,
    token_counts,
    wants_object,
)
from services.generation.providers.parameters import Dialect, Parameter

Result = TypeVar("Result")
Item = TypeVar("Item")


class GeminiApi(Api, BatchApi):
    """The API. With a project it is that of Vertex AI, with Google's application default credentials."""

    kind = "google"
    most_bytes = 15 << 20
    never: frozenset[Parameter] = frozenset({Parameter.PROMPT_CACHE, Parameter.JSON_SCHEMA_LENGTHS})

    def __init__(self, connection: Connection) -> None:
        self._headers = connection.headers
        self._query = dict(connection.query)
        vertex = bool(connection.project)
        # Batches of Vertex AI are read from a bucket or a table.
        self.batches = None if vertex else self
        self._http = connection.http_client()
        self._client = genai.Client(
            vertexai=vertex,
            project=connection.project or None,
            location=connection.region or None,
            # The headers of each request carry the key.
            api_key=None if vertex else "none",
            http_options=types.HttpOptions(
                base_url=connection.base_url or None,
                httpx_async_client=self._http,
            ),
        )

    def _inlined(self, call: Call, dialect: Dialect) -> types.InlinedRequest:
        """The request for a call, without further members."""
        instructions, messages = conversation(call, dialect)
        if not messages:
            raise ValueError("the request has no messages")
        config: dict[str, Any] = sampling(
            call, dialect, temperature="temperature", top_p="top_p", stop="stop_sequences", seed="seed"
        )
        if instructions:
            config["system_instruction"] = instructions
        cap = dialect.output_tokens(call)
        if cap is not None:
            config["max_output_tokens"] = cap
        form = schema(call, dialect)
        if form is not None:
            config["response_mime_type"] = "application/json"
            config["response_json_schema"] = json.loads(form.text)
        elif wants_object(call, dialect):
            config["response_mime_type"] = "application/json"
        if effort(call, dialect):
            level = effort(call, dialect).upper()
            config["thinking_config"] = types.ThinkingConfig(thinking_level=level, include_thoughts=True)
        if call.logprobs and Parameter.LOGPROBS not in dialect.omit:
            config["response_logprobs"] = True
            if call.top_logprobs and Parameter.TOP_LOGPROBS not in dialect.omit:
                config["logprobs"] = min(call.top_logprobs, dialect.most_top_logprobs or call.top_logprobs)
        return types.InlinedRequest(
            model=call.model,
            contents=[
                types.Content(
                    role="model" if message.role is Role.ASSISTANT else "user",
                    parts=[_part(one) for one in message.contents],
                )
                for message in messages
            ],
            config=types.GenerateContentConfig(**config),
        )

    async def send(self, call: Call, dialect: Dialect) -> Reply:
        made = self._inlined(call, dialect)
        assert made.config is not None
        made.config.http_options = await self._options(dict(dialect.extra_body))
        return await _reply(
            self._client.aio.models.generate_content(
                model=call.model, contents=cast("Any", made.contents), config=made.config
            )
        )

    async def _options(self, extra_body: Body | None = None) -> types.HttpOptions:
        # The package spells its header in lower case; another spelling would be sent beside it.
        headers = {name.lower(): value for name, value in (await self._headers()).items()}
        return types.HttpOptions(headers=headers, extra_body=extra_body)

    def request(self, call: Call, dialect: Dialect) -> Body:
        """The request for a call in a batch."""
        if dialect.extra_body:
            raise ValueError("the package has no further members for requests of batches")
        body: Body = self._inlined(call, dialect).model_dump(mode="json", exclude_none=True)
        return body

    async def submit(self, batch: str, requests: Mapping[str, Body]) -> str:
        inlined = [
            types.InlinedRequest.model_validate_json(to_json({**body, "metadata": {"key": key}}))
            for key, body in requests.items()
        ]
        config = types.CreateBatchJobConfig(display_name=batch, http_options=await self._options())
        model = inlined[0].model or ""
        made = await _made(self._client.aio.batches.create(model=model, src=inlined, config=config))
        return made.name or ""

    async def find(self, batch: str, since: float, count: int) -> str:
        del since, count
        config = types.ListBatchJobsConfig(page_size=100, http_options=await self._options())
        pages = await _made(self._client.aio.batches.list(config=config))
        jobs = await _made(_all(pages))
        return next((job.name or "" for job in jobs if job.display_name == batch), "")

    async def results(self, remote: str) -> Iterable[tuple[str, Reply]] | None:
        config = types.GetBatchJobConfig(http_options=await self._options())
        job = await _made(self._client.aio.batches.get(name=remote, config=config))
        if not job.done:
            return None
        responses = (job.dest.inlined_responses if job.dest is not None else None) or ()
        return [
            (
                (one.metadata or {}).get("key", ""),
                Reply(200, {}, one.response.model_dump(mode="json", by_alias=True, exclude_none=True)),
            )
            for one in responses
            if one.response is not None
        ]

    async def cancel(self, remote: str) -> None:
        config = types.CancelBatchJobConfig(http_options=await self._options())
        await _made(self._client.aio.batches.cancel(name=remote, config=config))

    def chat_completion(self, body: Any) -> Any:
        usage = body.get("usageMetadata") or {}
        counts = None
        if usage.get("promptTokenCount") is not None:
            thoughts = usage.get("thoughtsTokenCount") or 0
            counts = token_counts(
                usage["promptTokenCount"] + (usage.get("toolUsePromptTokenCount") or 0),
                (usage.get("candidatesTokenCount") or 0) + thoughts,
                cached=usage.get("cachedContentTokenCount") or 0,
                reasoning=thoughts,
            )
        if not body.get("candidates"):
            return {**body, "usage": counts}
        candidate = body["candidates"][0]
        content: list[dict[str, Any]] = []
        calls = []
        for part in (candidate.get("content") or {}).get("parts") or ():
            if part.get("text"):
                content.append({"type": "thinking" if part.get("thought") else "text", "text": part["text"]})
            if part.get("functionCall"):
                calls.append({"function": {"name": part["functionCall"].get("name", "")}})
        return completion(
            content,
            candidate.get("finishReason") or "STOP",
            model=body.get("modelVersion", ""),
            usage=counts,
            logprobs=_logprobs(candidate.get("logprobsResult") or {}),
            tool_calls=calls,
        )

    async def models(self) -> Reply | Sequence[str]:
        config = types.ListModelsConfig(http_options=await self._options())
        try:
            pages = await self._client.aio.models.list(config=config)
            names = [model.name or "" async for model in pages]
        except errors.APIError as error:
            return Reply(error.code, getattr(error.response, "headers", None) or {}, error.details)
        except Exception as error:
            raise _unreached(error) from None
        return [name.rpartition("models/")[2] for name in names if name]

    async def close(self) -> None:
        await self._client.aio.aclose()
        await self._http.aclose()


async def _made(request: Awaitable[Result]) -> Result:
    """What a method about batches returns. Raises RefusedError or NoResponseError."""
    try:
        return await request
    except errors.APIError as error:
        headers = getattr(error.response, "headers", None) or {}
        raise RefusedError(Reply(error.code, headers, error.details)) from None
    except Exception as error:
        raise _unreached(error) from None


async def _all(pages: AsyncIterable[Item]) -> list[Item]:
    return [one async for one in pages]


async def _reply(request: Any) -> Reply:
    try:
        response = await request
    except json.JSONDecodeError:
        return Reply(200, {}, "")
    except errors.APIError as error:
        return Reply(error.code, getattr(error.response, "headers", None) or {}, error.details)
    except Exception as error:
        raise _unreached(error) from None
    headers = {name.lower(): value for name, value in (response.sdk_http_response.headers or {}).items()}
    body = response.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Reply(200, headers, body)


def _unreached(error: Exception) -> Exception:
    """The error of a request without a response; errors of arguments as they are."""
    if isinstance(error, auth.GoogleAuthError):
        return NoResponseError(f"no credentials of Google: {error}", sent=False)
    if type(error).__module__.startswith(("httpx", "httpcore")):
        return no_response(error)
    return error


def _logprobs(result: dict[str, Any]) -> list[dict[str, Any]]:
    others = result.get("topCandidates") or ()
    tokens = []
    for place, token in enumerate(result.get("chosenCandidates") or ()):
        top = (others[place].get("candidates") or ()) if place < len(others) else ()
        tokens.append({**_token(token), "top_logprobs": [_token(other) for other in top]})
    return tokens


def _token(candidate: dict[str, Any]) -> dict[str, Any]:
    return {"token": candidate["token"], "logprob": candidate["logProbability"]}


def _part(content: str | Image) -> types.Part:
    if isinstance(content, str):
        return types.Part(text=content)
    return types.Part(inline_data=types.Blob(data=content.data, mime_type=content.media_type))
