"""Any endpoint that speaks the OpenAI chat-completions protocol."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import aiohttp
import openai
from pydantic_core import from_json

from services.generation.calls import Answer, Call, FinishReason
from services.generation.deadlines import Deadline
from services.generation.errors import FailureKind, ProviderError
from services.generation.providers.base import Provider
from services.generation.providers.refusals import Refusal
from services.generation.providers.transport import Response, ResponseTooLongError, Transport
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
_OK = 200


class OpenAICompatibleProvider(Provider):
    """One endpoint with one key: a single attempt a call.

    Completions are posted without the ``openai`` package (see ``Transport``), which lists the models.
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
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or _UNUSED_KEY,
            max_retries=0,
            timeout=None,  # whoever asks bounds the whole attempt; the package bounds single reads only
        )
        if urlsplit(base_url).hostname != OPENAI_HOST:
            # The package takes them from the environment; they are no one else's business.
            self._client.organization = self._client.project = None
        headers = {
            "Authorization": f"Bearer {api_key}" if api_key else None,
            "OpenAI-Organization": self._client.organization,
            "OpenAI-Project": self._client.project,
        }
        self._poster = Transport(
            f"{self.address}/chat/completions",
            {name: value for name, value in headers.items() if value},
            max_connections=max_connections,
        )

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
            begun = time.perf_counter()
            response = await self._post(request_body(call, structured, self._token_cap))
            latency = round(time.perf_counter() - begun, 6)
            if response.status == _OK:
                return self._read(response.content, latency)
            refusal = Refusal.read(response)
            if refusal.filtered:
                return Answer("", FinishReason.REFUSAL, self._safe(refusal.said))
            if call.json_form is None or structured.less is structured or not refusal.blames_form:
                raise self._refused(refusal)
            self._learned[call.model, call.json_form.name] = structured.less

    def _structured(self, call: Call) -> StructuredOutput:
        name = call.json_form.name if call.json_form is not None else ""
        return self._learned.get((call.model, name), self._structured_output)

    async def _post(self, body: bytes) -> Response:
        try:
            return await self._poster.post(body)
        except ResponseTooLongError as error:
            raise self._unreadable(error) from None
        except aiohttp.ClientError as error:
            unsent = isinstance(error, aiohttp.ClientConnectorError)
            raise self._unreachable(error, settled=unsent) from None

    def _read(self, content: bytes, latency: float) -> Answer:
        try:
            return read_response(_parsed(content), latency)
        except (MalformedResponseError, ValueError, RecursionError) as error:
            raise self._unreadable(error) from None

    async def models(self) -> Sequence[str]:
        """The names of the endpoint's models, sorted.

        Raises:
            ProviderError: the endpoint does not list them.
        """
        try:
            response = await self._client.models.with_raw_response.list()
            return sorted({str(entry["id"]) for entry in json.loads(response.content)["data"]})
        except openai.APIStatusError as error:
            said = Response(error.status_code, error.response.headers, error.response.content)
            raise self._refused(Refusal.read(said)) from None
        except openai.APIError as error:
            raise self._unreachable(error.__cause__ or error, settled=True) from None
        except (ValueError, TypeError, KeyError) as error:
            raise self._unreadable(error) from None

    async def close(self) -> None:
        """Closes the connections."""
        await self._poster.close()
        await self._client.close()

    def _refused(self, refusal: Refusal) -> ProviderError:
        # A provider may quote a part of the key in refusing it: those words stay here.
        said = "" if refusal.kind is FailureKind.UNAUTHENTICATED else f": {refusal.said}"
        return ProviderError(
            refusal.kind,
            self.name,
            self._safe(f"answered with HTTP status {refusal.status}{said}"),
            status=refusal.status,
            retry_after=refusal.retry_after,
            settled=refusal.settled,
        )

    def _unreachable(self, error: BaseException, *, settled: bool) -> ProviderError:
        message = f"cannot be reached: {type(error).__name__}: {error}"
        return ProviderError(FailureKind.TRANSIENT, self.name, self._safe(message), settled=settled)

    def _unreadable(self, error: Exception) -> ProviderError:
        message = f"the response cannot be read: {error}"
        return ProviderError(FailureKind.TRANSIENT, self.name, self._safe(message))

    def _safe(self, message: str) -> str:
        message = characters(message)
        if self._api_key:
            message = message.replace(self._api_key, "[key]")
        return message if len(message) <= MAX_MESSAGE_LENGTH else message[:MAX_MESSAGE_LENGTH] + "..."


def _parsed(content: bytes) -> object:
    try:
        return from_json(content)
    except ValueError:
        return json.loads(content)  # knows more encodings, and half surrogate pairs
