"""Any endpoint that speaks the OpenAI chat-completions protocol: its requests and its streamed answers."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import aiohttp
from pydantic_core import from_json, to_json

from services.generation.answers.forms import JsonForm
from services.generation.calls import Answer, Call, FailureKind, Message, ProviderError, Role
from services.generation.providers.base import KeyFilter
from services.generation.providers.parameters import Dialect, Parameter
from services.generation.providers.refusals import Refusal, read_quotas
from services.generation.providers.response_body import (
    ErrorResponse,
    MalformedResponseError,
    read_response,
)
from services.generation.providers.stepping import SteppingProvider
from services.generation.providers.transport import (
    Access,
    RedirectError,
    Response,
    ResponseTooLongError,
    Transport,
)


def request_body(call: Call, dialect: Dialect) -> bytes:
    """The JSON body of the request for ``call``. Nothing is sent that the call does not ask for."""
    sampling, omit, messages = call.sampling, dialect.omit, call.messages
    alternatives = min(call.top_logprobs, dialect.most_top_logprobs or call.top_logprobs)
    options: dict[str, Any] = {}
    if sampling.temperature is not None and Parameter.TEMPERATURE not in omit:
        options["temperature"] = sampling.temperature
    if sampling.top_p is not None and Parameter.TOP_P not in omit:
        options["top_p"] = sampling.top_p
    cap = dialect.output_tokens(call)
    if cap is not None:
        options[dialect.token_parameter] = cap
    if sampling.seed is not None and Parameter.SEED not in omit:
        options["seed"] = sampling.seed
    if sampling.stop and Parameter.STOP not in omit:
        options["stop"] = list(sampling.stop)
    effort = sampling.reasoning_effort or dialect.reasoning_effort
    if effort and Parameter.REASONING_EFFORT not in omit:
        options["reasoning_effort"] = effort
    if call.logprobs and Parameter.LOGPROBS not in omit:
        options["logprobs"] = True
        if alternatives and Parameter.TOP_LOGPROBS not in omit:
            options["top_logprobs"] = alternatives
    if dialect.stream:
        options["stream"] = True
        if Parameter.STREAM_OPTIONS not in omit:
            options["stream_options"] = {"include_usage": True}
    options.update(dialect.extra_body)
    form, form_sent = call.json_form, b""
    if form is not None:
        if Parameter.JSON_SCHEMA in omit:
            messages = with_schema(messages, form)
        if "response_format" not in dialect.extra_body:
            if Parameter.JSON_SCHEMA not in omit:
                form_sent = _response_format(form.name, dialect.schema(call), form.is_strict)
            elif Parameter.JSON_OBJECT not in omit:
                form_sent = b',"response_format":{"type":"json_object"}'
    if Parameter.SYSTEM_ROLE in omit:
        messages = without_system(messages)
    return b'{"model":%b,"messages":[%b]%b%b}' % (
        to_json(call.model),
        b",".join(
            [b'{"role":"%b","content":%b}' % (said.role.encode(), _content(said)) for said in messages]
        ),
        b"".join(
            [
                b",%b:%b" % (to_json(name), to_json(value))
                for name, value in options.items()
                if value is not None
            ]
        ),
        form_sent,
    )


def _content(said: Message) -> bytes:
    """The content of a message as JSON: a text, or a list of texts and images."""
    if not said.parts:
        return said.quoted
    return to_json(
        [
            {"type": "text", "text": one}
            if isinstance(one, str)
            else {"type": "image_url", "image_url": {"url": one.data_url}}
            for one in said.contents
        ]
    )


@lru_cache(maxsize=256)
def _response_format(name: str, schema: str, is_strict: bool) -> bytes:
    """The last member of the body, with the comma before it: the same for every call of a form."""
    described = b'{"name":%b,"schema":%b,"strict":%b}' % (to_json(name), schema.encode(), to_json(is_strict))
    return b',"response_format":{"type":"json_schema","json_schema":%b}' % described


def with_schema(messages: tuple[Message, ...], form: JsonForm) -> tuple[Message, ...]:
    """Tells the model the schema that the endpoint does not enforce, with the other instructions."""
    told = f"Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{form.text}"
    if messages[0].role is Role.SYSTEM:
        return messages[0].joined(Message(Role.SYSTEM, told)), *messages[1:]
    return Message(Role.SYSTEM, told), *messages


def without_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The instructions at the start of the user's next message; neighbours of one role are one message."""
    merged: list[Message] = []
    for said in messages:
        role = Role.USER if said.role is Role.SYSTEM else said.role
        if merged and merged[-1].role is role:
            merged[-1] = merged[-1].joined(said)
        else:
            merged.append(Message(role, said.text, said.parts))
    return tuple(merged)


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


OPENAI_HOST = "api.openai.com"
"""The host of OpenAI itself."""
_OK = 200


class OpenAICompatibleProvider(SteppingProvider):
    """One endpoint with one key."""

    def __init__(
        self,
        name: str,
        base_url: str,
        access: Access | None = None,
        *,
        address: str = "",
        default_model: str = "",
        dialect: Callable[[str], Dialect] = lambda _: Dialect(),
        remember_seconds: float = 86_400.0,
        keys: KeyFilter | None = None,
        unstreamed_seconds: float | None = None,
        max_connections: int = 1000,
    ) -> None:
        """Opens nothing yet.

        Args:
            name: The provider's name.
            base_url: The endpoint, version included.
            access: Headers, query and certificates.
            address: What tells its answers from those of other endpoints. Empty: the address without query.
            default_model: The model where a request names none.
            dialect: How a model is called, by the settings.
            remember_seconds: How long what a model refused is remembered.
            keys: Removes keys from responses. None: nothing is removed.
            unstreamed_seconds: The longest that an answer may take that is not streamed. None: the caller
                limits it.
            max_connections: The most connections at once.

        Raises:
            OSError: a certificate or key cannot be used.
        """
        self.base_url = base_url.partition("?")[0].rstrip("/")
        super().__init__(
            name,
            address or self.base_url,
            default_model=default_model,
            dialect=dialect,
            remember_seconds=remember_seconds,
            keys=keys,
        )
        self._unstreamed_seconds = unstreamed_seconds
        self._transport = Transport(base_url, access, max_connections=max_connections)

    def __repr__(self) -> str:
        return f"OpenAICompatibleProvider({self.name!r})"

    async def _ask(self, call: Call, dialect: Dialect) -> Answer | Refusal:
        """One request: the answer, or why the endpoint refuses it."""
        begun = time.perf_counter()
        response = await self._post(request_body(call, dialect), streamed=dialect.stream)
        if response.status != _OK:
            refusal = Refusal.read(response)
        else:
            stop = call.sampling.stop if Parameter.STOP in dialect.omit else ()
            try:
                answer = read_response(_parsed(response), round(time.perf_counter() - begun, 6), stop)
            except ErrorResponse as error:
                refusal = error.refusal
            except (MalformedResponseError, ValueError, RecursionError) as error:
                raise self._unreadable(error) from None
            else:
                self._filter.clean(answer)
                answer.quotas = read_quotas(response.headers)
                return answer
        if refusal.filtered:
            return self._filtered(refusal)
        return refusal

    async def _post(self, body: bytes, *, streamed: bool) -> Response:
        try:
            async with asyncio.timeout(None if streamed else self._unstreamed_seconds):
                response = await self._transport.post("/chat/completions", body, streamed=streamed)
                return self._without_keys(response)
        except (ResponseTooLongError, RedirectError) as error:
            raise self._unusable(error) from None
        except TimeoutError:
            raise ProviderError(
                FailureKind.TRANSIENT, self.name, "no answer within the time limit of the provider's settings"
            ) from None
        except aiohttp.ClientError as error:
            raise self._unreachable(error) from None

    async def models(self) -> Sequence[str]:
        """The names of the endpoint's models, sorted.

        Raises:
            ProviderError: the endpoint does not list them.
        """
        try:
            response = self._without_keys(await self._transport.get("/models"))
        except (ResponseTooLongError, RedirectError) as error:
            raise self._unusable(error) from None
        except (TimeoutError, aiohttp.ClientError) as error:
            raise self._unreachable(error) from None
        if response.status != _OK:
            raise self._refused(Refusal.read(response))
        try:
            return sorted(set(_model_names(json.loads(response.content))))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._unreadable(error) from None

    async def close(self) -> None:
        await self._transport.close()

    def _unreachable(self, error: BaseException) -> ProviderError:
        message = self._safe(f"cannot be reached: {type(error).__name__}: {error}")
        if isinstance(error, aiohttp.ClientConnectorCertificateError) or isinstance(
            getattr(error, "os_error", None), ssl.SSLCertVerificationError
        ):
            return ProviderError(FailureKind.ADDRESS_INVALID, self.name, message, settled=True)
        unsent = isinstance(error, aiohttp.ClientConnectorError)
        return ProviderError(FailureKind.TRANSIENT, self.name, message, settled=unsent)

    def _unusable(self, error: Exception) -> ProviderError:
        if isinstance(error, RedirectError):
            return ProviderError(FailureKind.ADDRESS_INVALID, self.name, self._safe(str(error)), settled=True)
        return self._unreadable(error)

    def _without_keys(self, response: Response) -> Response:
        return Response(response.status, response.headers, self._filter.content(response.content))


def _parsed(response: Response) -> object:
    if is_stream(response.headers.get("Content-Type", "")):
        return assemble(response.content)
    try:
        return from_json(response.content)
    except ValueError:
        pass
    if response.content.lstrip().startswith((b"data:", b"event:", b":")):
        return assemble(response.content)
    return json.loads(response.content)  # supports more encodings, and half surrogate pairs


def _model_names(body: Any) -> list[str]:
    listed = body if isinstance(body, list) else body.get("data") or body.get("models") or body["data"]
    return [
        str(entry.get("id") or entry["name"]) if isinstance(entry, dict) else str(entry) for entry in listed
    ]
