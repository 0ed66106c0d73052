"""Endpoints that are called by their vendor's package: what is the same for all of them.

An API translates a call to the arguments of its package and a response to the body of a chat completion.
Refusals, truncation, reasoning, token counts and limits are therefore read by the code of chat completions.
"""

from __future__ import annotations

import json
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from services.generation.calls import Answer, Call, FailureKind, Message, ProviderError, Role
from services.generation.providers.base import BatchProvider, KeyFilter, Reading
from services.generation.providers.openai_compatible import with_schema, without_system
from services.generation.providers.parameters import Dialect, Parameter
from services.generation.providers.refusals import Refusal, read_quotas, retry_after
from services.generation.providers.response_body import ErrorResponse, MalformedResponseError, read_response
from services.generation.providers.stepping import SteppingProvider

Body = dict[str, Any]
Result = TypeVar("Result")

logger = logging.getLogger(__name__)
CLOCKS_SECONDS = 3600.0
"""The most by which the clock of an endpoint may differ."""
_OK = 200


@dataclass(frozen=True, slots=True)
class Connection:
    """How a package reaches an endpoint."""

    base_url: str
    """Empty: the package's own."""
    headers: Callable[[], Awaitable[Mapping[str, str]]]
    """The headers of the settings with the credentials, asked for with every request."""
    query: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    """None: the system's certificates."""
    ca_file: str = ""
    """The trusted certificates, for a package that takes a file. Empty: the system's."""
    seconds: float = 600.0
    """The longest that a response may take, where the caller cannot end a request."""
    most_requests: int = 256
    """The most requests at once."""
    project: str = ""
    region: str = ""

    def http_client(self) -> Any:
        """A client that sets no time limit and follows no redirects, which could carry a key elsewhere."""
        import httpx2

        return httpx2.AsyncClient(
            timeout=None,
            follow_redirects=False,
            verify=self.tls or _system_certificates(),
            limits=httpx2.Limits(max_connections=self.most_requests, keepalive_expiry=4.0),
        )


@lru_cache(maxsize=1)
def _system_certificates() -> ssl.SSLContext:
    # Loaded once: it takes longer than a call.
    return ssl.create_default_context()


@dataclass(frozen=True, slots=True)
class Reply:
    """A response of any status."""

    status: int
    headers: Mapping[str, str]
    body: Any
    """JSON; text where it is none."""


class NoResponseError(Exception):
    """No response came.

    Attributes:
        sent: Whether the request may have been sent.
        untrusted: Whether the certificate of the endpoint is not trusted.
    """

    def __init__(self, message: str, *, sent: bool, untrusted: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.untrusted = untrusted


class RefusedError(Exception):
    """A request about a batch was refused.

    Attributes:
        reply: The response.
    """

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"HTTP status {reply.status}")
        self.reply = reply


def accepted(reply: Reply) -> Any:
    """The body of a response. Raises RefusedError for a status other than 200."""
    if reply.status != _OK:
        raise RefusedError(reply)
    return reply.body


class BatchApi(Protocol):
    """The batches of an API. Methods raise NoResponseError, RefusedError, ValueError, TypeError, KeyError.

    Attributes:
        most_bytes: The largest batch, in bytes of requests as JSON.
        key_length: How many characters of the keys of requests results have.
    """

    most_bytes: int
    key_length: int = 64

    def request(self, call: Call, dialect: Dialect) -> Body:
        """The body of the request for a call."""

    async def submit(self, batch: str, requests: Mapping[str, Body]) -> str:
        """As of ``BatchProvider``."""

    async def find(self, batch: str, since: float, count: int) -> str | None:
        """As of ``BatchProvider``."""

    async def results(self, remote: str) -> Iterable[tuple[str, Reply]] | None:
        """The responses of a batch by the keys of its requests. None: it has not ended."""

    async def cancel(self, remote: str) -> None:
        """As of ``BatchProvider``."""


class Api(Protocol):
    """One API, by its vendor's package."""

    kind: str
    never: frozenset[Parameter]
    """What the API has no parameter for."""
    batches: BatchApi | None = None
    """Its batches. None: it has none here."""

    async def send(self, call: Call, dialect: Dialect) -> Reply:
        """Makes one request. Raises NoResponseError; ValueError or TypeError for what it cannot send."""

    def chat_completion(self, body: Any) -> Any:
        """A response body as that of a chat completion. Raises ValueError, TypeError, KeyError."""

    async def models(self) -> Reply | Sequence[str]:
        """The names of the models, or the refusal. Raises NoResponseError."""

    async def close(self) -> None:
        """Closes connections."""


class PackageProvider(SteppingProvider):
    """An endpoint of an API."""

    def __init__(
        self,
        name: str,
        address: str,
        api: Api,
        *,
        default_model: str = "",
        dialect: Callable[[str], Dialect] = lambda _: Dialect(),
        remember_seconds: float = 86_400.0,
        keys: KeyFilter | None = None,
    ) -> None:
        """Opens nothing. The arguments are those of [SteppingProvider], and the API."""
        super().__init__(
            name,
            address,
            default_model=default_model,
            dialect=lambda model: dialect(model).without(api.never),
            remember_seconds=remember_seconds,
            keys=keys,
        )
        self._api = api
        self.kind = api.kind

    async def _ask(self, call: Call, dialect: Dialect) -> Answer | Refusal:
        begun = time.perf_counter()
        try:
            reply = await self._api.send(call, dialect)
        except NoResponseError as error:
            raise self._unreachable(error) from None
        except (ValueError, TypeError) as error:
            return Refusal(400, "", (), f"the request cannot be sent: {error}")
        stop = call.sampling.stop if Parameter.STOP in dialect.omit else ()
        return self._read(reply, stop, round(time.perf_counter() - begun, 6))

    def _read(self, reply: Reply, stop: tuple[str, ...], latency: float) -> Answer | Refusal:
        """The answer of a response, or why there is none. Raises ProviderError if it cannot be read."""
        if reply.status != _OK:
            refusal = _refusal(reply)
        else:
            try:
                answer = read_response(self._api.chat_completion(_object(reply.body)), latency, stop)
            except ErrorResponse as error:
                refusal = error.refusal
            except (MalformedResponseError, ValueError, TypeError, KeyError, RecursionError) as error:
                raise self._unreadable(error) from None
            else:
                self._filter.clean(answer)
                answer.quotas = read_quotas(reply.headers)
                return answer
        return self._filtered(refusal) if refusal.filtered else refusal

    async def models(self) -> Sequence[str]:
        """The names of the endpoint's models, sorted.

        Raises:
            ProviderError: the endpoint does not list them.
        """
        try:
            listed = await self._api.models()
        except NoResponseError as error:
            raise self._unreachable(error) from None
        except (ValueError, TypeError, KeyError) as error:
            raise self._unreadable(error) from None
        if isinstance(listed, Reply):
            raise self._refused(_refusal(listed))
        return sorted(set(listed))

    async def close(self) -> None:
        await self._api.close()

    @property
    def batches(self) -> BatchProvider | None:
        """The batches of the endpoint. None: it has none here."""
        return None if self._api.batches is None else _Batches(self, self._api.batches)

    def _unreachable(self, error: NoResponseError) -> ProviderError:
        kind = FailureKind.ADDRESS_INVALID if error.untrusted else FailureKind.TRANSIENT
        message = self._safe(f"cannot be reached: {error}")
        return ProviderError(kind, self.name, message, settled=error.untrusted or not error.sent)


class _Batches(BatchProvider):
    """The batches of an endpoint."""

    def __init__(self, provider: PackageProvider, api: BatchApi) -> None:
        self._provider = provider
        self._api = api
        self.most_bytes = api.most_bytes

    def knows(self, call: Call) -> bool:
        return self._provider._compatibility.knows(call)

    def request(self, call: Call) -> tuple[Body, Reading]:
        dialect = self._provider._compatibility.dialect(call).without(call.omit)
        stop = call.sampling.stop if Parameter.STOP in dialect.omit else ()
        return self._api.request(call, dialect), Reading(dialect.omitted(call), stop)

    async def submit(self, batch: str, requests: Mapping[str, Body]) -> str:
        return await self._made(self._api.submit(batch, requests))

    async def find(self, batch: str, since: float, count: int) -> str | None:
        return await self._made(self._api.find(batch, since, count))

    async def collect(self, remote: str, readings: Mapping[str, Reading]) -> Mapping[str, Answer] | None:
        results = await self._made(self._api.results(remote))
        if results is None:
            return None
        answers: dict[str, Answer] = {}
        keys = {key[: self._api.key_length]: key for key in readings}
        for shown, reply in results:
            if (key := keys.get(shown)) is None:
                continue
            reading = readings[key]
            try:
                answer = self._provider._read(reply, reading.stop, 0.0)
            except ProviderError as error:
                logger.warning("provider %s: an answer of a batch: %s", self._provider.name, error)
                continue
            if isinstance(answer, Answer):
                answer.omitted = reading.omitted
                answer.batched = True
                answers[key] = answer
        return answers

    async def cancel(self, remote: str) -> None:
        await self._made(self._api.cancel(remote))

    async def _made(self, request: Awaitable[Result]) -> Result:
        provider = self._provider
        try:
            return await request
        except NoResponseError as error:
            raise provider._unreachable(error) from None
        except RefusedError as error:
            raise provider._refused(_refusal(error.reply)) from None
        except (ValueError, TypeError, KeyError) as error:
            raise provider._unreadable(error) from None


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise MalformedResponseError("the response is not a JSON object")
    return body


def _refusal(reply: Reply) -> Refusal:
    return Refusal.of_error(
        reply.body, reply.status, retry_after=retry_after(reply.headers), quotas=read_quotas(reply.headers)
    )


def stainless(connection: Connection) -> dict[str, Any]:
    """The arguments of a client of the packages that Stainless generates: openai and anthropic."""
    return {
        # The headers of each request carry the key.
        "api_key": "none",
        "base_url": connection.base_url or None,
        "max_retries": 0,
        "timeout": None,
        "default_query": dict(connection.query),
        "http_client": connection.http_client(),
    }


async def of_stainless(request: Awaitable[Any], package: Any) -> Reply:
    """The response to a request of the packages that Stainless generates: openai and anthropic.

    Args:
        request: A call of a method of ``with_raw_response``.
        package: The package, for its exceptions.

    Raises:
        NoResponseError: there is none.
    """
    try:
        response = (await request).http_response
    except package.APIStatusError as error:
        response = error.response
    except package.APIConnectionError as error:
        raise no_response(error.__cause__ or error) from None
    try:
        body = response.json()
    except ValueError:
        body = response.text
    return Reply(response.status_code, response.headers, body)


def json_lines(body: Any) -> list[Body]:
    """The objects of a body of JSON Lines, which is JSON as a whole if it has one line."""
    lines = body.splitlines() if isinstance(body, str) else None
    return [body] if lines is None else [json.loads(line) for line in lines if line.strip()]


def no_response(error: BaseException) -> NoResponseError:
    """An error of httpx2 as that of a missing response."""
    said = f"{type(error).__name__}: {error}"
    unsent = type(error).__name__ in {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"}
    return NoResponseError(said, sent=not unsent, untrusted="CERTIFICATE_VERIFY_FAILED" in said)


def conversation(call: Call, dialect: Dialect) -> tuple[str, list[Message]]:
    """The instructions, and the messages of user and assistant, of which no two neighbours have one role.

    A schema that the endpoint does not enforce is in the instructions.
    """
    messages = call.messages
    form = call.json_form
    if form is not None and Parameter.JSON_SCHEMA in dialect.omit:
        messages = with_schema(messages, form)
    if Parameter.SYSTEM_ROLE in dialect.omit:
        return "", list(without_system(messages))
    instructions = [message.texts for message in messages if message.role is Role.SYSTEM]
    others = [message for message in messages if message.role is not Role.SYSTEM]
    return "\n\n".join(instructions), list(without_system(tuple(others)))


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema that an endpoint is to enforce."""

    name: str
    text: str
    """Compact JSON, without the keywords that are not sent."""
    is_strict: bool
    """See [JsonForm]."""


def schema(call: Call, dialect: Dialect) -> Schema | None:
    """The schema that the endpoint is to enforce, if any."""
    form = call.json_form
    if form is None or Parameter.JSON_SCHEMA in dialect.omit:
        return None
    return Schema(form.name, dialect.schema(call), form.is_strict)


def wants_object(call: Call, dialect: Dialect) -> bool:
    """Whether the endpoint is to enforce JSON without the schema."""
    omit = dialect.omit
    return call.json_form is not None and Parameter.JSON_SCHEMA in omit and Parameter.JSON_OBJECT not in omit


def effort(call: Call, dialect: Dialect) -> str:
    """The reasoning effort that is sent. Empty: none."""
    asked = call.sampling.reasoning_effort or dialect.reasoning_effort
    return "" if Parameter.REASONING_EFFORT in dialect.omit else asked


def sampling(
    call: Call, dialect: Dialect, *, temperature: str, top_p: str, stop: str, seed: str = ""
) -> dict[str, Any]:
    """The parameters of sampling that are sent, by the API's names for them."""
    asked, omit = call.sampling, dialect.omit
    named = (
        (temperature, asked.temperature, Parameter.TEMPERATURE),
        (top_p, asked.top_p, Parameter.TOP_P),
        (stop, list(asked.stop) or None, Parameter.STOP),
        (seed, asked.seed, Parameter.SEED),
    )
    return {name: value for name, value, parameter in named if value is not None and parameter not in omit}


def completion(
    content: Sequence[Mapping[str, Any]],
    finish: str,
    *,
    model: str = "",
    usage: Mapping[str, Any] | None = None,
    logprobs: Sequence[Mapping[str, Any]] = (),
    tool_calls: Sequence[Mapping[str, Any]] = (),
    **message: Any,
) -> dict[str, Any]:
    """The body of a chat completion of these parts."""
    content = list(content)
    if finish == "tool_use" and len(tool_calls) == 1 and not any(part["type"] == "text" for part in content):
        # The one tool that is ever sent is the form of the answer.
        content.append({"type": "text", "text": json.dumps(tool_calls[0]["function"]["input"])})
        finish, tool_calls = "end_turn", ()
    choice: dict[str, Any] = {
        "message": {"content": content, "tool_calls": list(tool_calls), **message},
        "finish_reason": finish,
    }
    if logprobs:
        choice["logprobs"] = {"content": list(logprobs)}
    return {"model": model, "choices": [choice], "usage": usage}


def token_counts(prompt: int, output: int, *, cached: int = 0, reasoning: int = 0) -> dict[str, Any]:
    """Token counts as those of a chat completion.

    Args:
        prompt: The tokens of the prompt.
        output: The tokens of the answer.
        cached: Those of ``prompt`` that came from the provider's cache.
        reasoning: Those of ``output`` that are reasoning.
    """
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
