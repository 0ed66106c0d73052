"""Any endpoint that speaks the OpenAI chat-completions protocol."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import aiohttp
import httpx2
import openai

from services.generation.calls import Answer, Call, FinishReason
from services.generation.deadlines import Deadline
from services.generation.errors import FailureKind, ProviderError
from services.generation.providers.base import Provider
from services.generation.providers.retry_after import retry_after
from services.generation.providers.wire import (
    MalformedResponseError,
    StructuredOutput,
    TokenCapName,
    characters,
    read_response,
    request_body,
)

OPENAI_HOST = "api.openai.com"
"""Where OpenAI itself is."""
MAX_MESSAGE_LENGTH = 500
"""How much of a provider's own error message is passed on, in characters."""

# One line a request, with its address: the service's own log says more with less.
logging.getLogger("httpx2").setLevel(logging.WARNING)

_UNUSED_KEY = "none"  # the package insists on a key; endpoints without credentials ignore it
_TRANSIENT_STATUSES = frozenset({408, 409, 425})
_GATEWAY_STATUSES = frozenset(
    {408, 502, 504, 524}
)  # something in between gave up; the model may have gone on
_RATE_LIMIT_STATUSES = frozenset({429, 529})
_OUT_OF_CREDIT = "insufficient_quota"
_FILTERED = "content_filter"
_FORM_WORDS = ("response_format", "json_schema", "json_object", "structured output")


class OpenAICompatibleProvider(Provider):
    """One endpoint with one key: a single attempt a call, through the ``openai`` package.

    The package posts the body as it is written here and hands over the response as it came: its typed methods
    take 0.35 ms more of a call's 0.9 ms of processor time (measured with openai 3.52), for objects that are
    not needed.
    """

    keeps = False

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str = "",
        *,
        default_model: str = "",
        structured_output: StructuredOutput = StructuredOutput.JSON_SCHEMA,
        token_cap: TokenCapName = "max_tokens",  # noqa: S107 - a field's name
        max_connections: int = 1000,
    ) -> None:
        self.name = name
        self.address = base_url.rstrip("/")
        self.default_model = default_model
        self._api_key = api_key
        self._token_cap: TokenCapName = token_cap
        self._structured_output = structured_output
        self._learned: dict[tuple[str, str], StructuredOutput] = {}
        limits = httpx2.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or _UNUSED_KEY,
            max_retries=0,
            timeout=None,  # whoever asks bounds the whole attempt; the package bounds single reads only
            http_client=openai.DefaultAioHttpClient(limits=limits),
        )
        if urlsplit(base_url).hostname != OPENAI_HOST:
            # The package takes them from the environment; they are no one else's business.
            self._client.organization = self._client.project = None

    def __repr__(self) -> str:
        return f"OpenAICompatibleProvider({self.name!r})"

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """Makes one attempt, or one more for each step down in structured output that the endpoint demands.

        Sets no time limit of its own. A request that the endpoint's filter refuses is answered by a refusal.

        Raises:
            ProviderError: there is no answer.
        """
        del deadline
        while True:
            structured = self._structured(call)
            try:
                return await self._attempt(request_body(call, structured, self._token_cap))
            except openai.BadRequestError as error:
                if error.code == _FILTERED:
                    return Answer("", FinishReason.REFUSAL, self._safe(_said(error)))
                if call.json_form is None or structured.less is structured or not _blames_form(error):
                    raise self._fault(error) from None
                self._learned[call.model, call.json_form.name] = structured.less
            except openai.APIError as error:
                raise self._fault(error) from None

    def _structured(self, call: Call) -> StructuredOutput:
        name = call.json_form.name if call.json_form is not None else ""
        return self._learned.get((call.model, name), self._structured_output)

    async def _attempt(self, body: bytes) -> Answer:
        begun = time.perf_counter()
        response = await self._client.post("/chat/completions", cast_to=httpx2.Response, content=body)
        latency = round(time.perf_counter() - begun, 6)
        try:
            return read_response(json.loads(response.content), latency)
        except (MalformedResponseError, ValueError, RecursionError) as error:
            message = f"the response cannot be read: {error}"
            raise ProviderError(FailureKind.TRANSIENT, self.name, self._safe(message)) from None

    async def models(self) -> Sequence[str]:
        """The names of the endpoint's models, sorted.

        Raises:
            ProviderError: the endpoint does not list them.
        """
        try:
            response = await self._client.get("/models", cast_to=httpx2.Response)
            return sorted({str(entry["id"]) for entry in json.loads(response.content)["data"]})
        except openai.APIError as error:
            raise self._fault(error) from None
        except (ValueError, TypeError, KeyError) as error:
            message = f"the response cannot be read: {error!r}"
            raise ProviderError(FailureKind.TRANSIENT, self.name, self._safe(message)) from None

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    def _fault(self, error: openai.APIError) -> ProviderError:
        if not isinstance(error, openai.APIStatusError):
            cause = error.__cause__ or error
            message = f"cannot be reached: {type(cause).__name__}: {cause}"
            # The package's transport gives every lost connection one name; what it was called before tells.
            unsent = isinstance(cause.__cause__, aiohttp.ClientConnectorError)
            return ProviderError(FailureKind.TRANSIENT, self.name, self._safe(message), settled=unsent)
        kind, status = _kind(error), error.status_code
        # A provider may quote a part of the key in refusing it: those words stay here.
        said = "" if kind is FailureKind.UNAUTHENTICATED else f": {_said(error)}"
        return ProviderError(
            kind,
            self.name,
            self._safe(f"answered with HTTP status {status}{said}"),
            status=status,
            retry_after=retry_after(error.response.headers),
            settled=status not in _GATEWAY_STATUSES,
        )

    def _safe(self, message: str) -> str:
        message = characters(message)
        if self._api_key:
            message = message.replace(self._api_key, "[key]")
        return message if len(message) <= MAX_MESSAGE_LENGTH else message[:MAX_MESSAGE_LENGTH] + "..."


def _kind(error: openai.APIStatusError) -> FailureKind:
    status = error.status_code
    if status in _RATE_LIMIT_STATUSES and error.code != _OUT_OF_CREDIT:
        return FailureKind.RATE_LIMITED
    if status in _TRANSIENT_STATUSES or status >= 500:
        return FailureKind.TRANSIENT
    if status in {401, 403}:
        return FailureKind.UNAUTHENTICATED
    if status == 404 and error.code == "model_not_found":
        return FailureKind.MODEL_UNKNOWN
    return FailureKind.REJECTED


def _said(error: openai.APIStatusError) -> str:
    """The provider's own words, from the places where the common servers put them."""
    body = error.body
    message = body.get("message") or body.get("detail") if isinstance(body, Mapping) else None
    return str(message or error.response.text or "nothing said")


def _blames_form(error: openai.APIStatusError) -> bool:
    said = f"{error.param} {_said(error)}".lower()
    return any(word in said for word in _FORM_WORDS)
