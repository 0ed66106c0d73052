"""The protocol of completion providers; metrics and spans of their calls, and the removal of their keys.

Attributes are those of OpenTelemetry's semantic conventions for generative AI (``gen_ai.*``), for the
operation "chat".
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue

from dramaturg.service.logs import REDACTED, redact, secrets_of
from dramaturg.service.telemetry import tracing
from dramaturg.service.telemetry.settings import MAX_TEXT_LENGTH
from dramaturg.service.telemetry.tracing import known_as, server_attributes
from services.generation.calls import Answer, Call, Deadline, Message, ProviderError, Role
from services.generation.metrics import ATTEMPTS, count_call


class Provider(Protocol):
    """A source of completions.

    Attributes:
        name: The name in the configuration.
        address: Identifies the endpoint and the settings that decide its answers; part of every fingerprint.
        default_model: The model of requests that name the provider only. Empty: there is none.
        keeps: Whether the provider keeps its answers, so that the ledger does not.
    """

    name: str
    address: str
    default_model: str
    keeps: bool

    @abstractmethod
    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """Answers ``call``, or raises ProviderError, DeadlinePassedError or NotRecordedError."""

    @abstractmethod
    async def models(self) -> Sequence[str]:
        """The names of its models, sorted. Raises ProviderError."""

    @abstractmethod
    async def close(self) -> None:
        """Closes connections and files."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a response to a request of a batch is read."""

    omitted: tuple[str, ...] = ()
    """The parameters of the call that the request omitted, by name."""
    stop: tuple[str, ...] = ()
    """The texts at which the answer is cut here."""


class BatchProvider(Protocol):
    """The batches of a provider. Its methods raise ProviderError, ValueError or TypeError.

    Attributes:
        most_bytes: The largest batch, in bytes of requests as JSON.
    """

    most_bytes: int

    def knows(self, call: Call) -> bool:
        """Whether a call of its kind was made by this process, so that refused parameters are known."""

    def request(self, call: Call) -> tuple[Any, Reading]:
        """The request of a call in a batch, as JSON, and how the response is read."""

    async def submit(self, batch: str, requests: Mapping[str, Any]) -> str:
        """Sends a batch; returns the provider's id of it.

        Args:
            batch: Our id.
            requests: The requests by their keys.
        """

    async def find(self, batch: str, since: float, count: int) -> str | None:
        """The provider's id of a batch, by our id. Empty: it did not arrive. None: that cannot be told yet.

        Args:
            batch: Our id.
            since: When it was sent at the earliest, in seconds since 1970.
            count: The number of its requests.
        """

    async def collect(self, remote: str, readings: Mapping[str, Reading]) -> Mapping[str, Answer] | None:
        """The answers of a batch by their keys. None: it has not ended. A failed request has no answer."""

    async def cancel(self, remote: str) -> None:
        """Has a batch end with the answers that it has."""


_REDACTED = REDACTED.encode()


class KeyFilter:
    """Replaces keys by ``[key]``: as they are, in base64, URL-encoded, and with the escapes of JSON.

    A response is filtered before anything of it is read or cut. What is put together from its parts later,
    the text of a streamed answer and the tokens of an answer, is filtered again.

    Args:
        keys: The keys. Those of fewer than ``LEAST_SECRET_LENGTH`` characters are left.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._add(keys)

    def add(self, key: str) -> None:
        """Replaces another key as well: responses to requests with an earlier one may still come."""
        if key not in self.keys:
            self._add([*self.keys, key])

    def _add(self, keys: Iterable[str]) -> None:
        self.keys = secrets_of(keys)
        self._forms = secrets_of({form for key in self.keys for form in _forms(key)})
        self._encoded = [form.encode() for form in self._forms]

    def content(self, content: bytes) -> bytes:
        """The body of a response without keys."""
        for form in self._encoded:
            if form in content:
                content = content.replace(form, _REDACTED)
        return content

    def text(self, text: str) -> str:
        """A text without keys."""
        return redact(text, self._forms)

    def clean(self, answer: Answer) -> None:
        """Removes the keys from an answer. Log-probabilities of tokens that spell a key are left out."""
        answer.text = self.text(answer.text)
        answer.model = self.text(answer.model)
        if answer.refusal:
            answer.refusal = self.text(answer.refusal)
        if answer.reasoning:
            answer.reasoning = self.text(answer.reasoning)
        if answer.detail:
            answer.detail = self.text(answer.detail)
        if answer.notes:
            answer.notes = tuple(map(self.text, answer.notes))
        if answer.tokens:
            spelt = "".join([token.text for token in answer.tokens])
            if self.text(spelt) != spelt:
                answer.tokens = ()
                answer.notes = (*answer.notes, "log-probabilities left out: the tokens spell a key")


def _forms(key: str) -> Iterator[str]:
    for form in (key, *_base64(key.encode())):
        yield form
        quoted = quote(form, safe="")
        yield quoted
        yield quote(form, safe="").replace("%2B", "%2b").replace("%2F", "%2f").replace("%3D", "%3d")
        # Serializers of JSON escape these two, some of them.
        yield form.replace("/", "\\/")
        yield form.replace("+", "\\u002B")
        yield form.replace("+", "\\u002b")


def _base64(key: bytes) -> Iterator[str]:
    """The parts of a base64 text that show a key, wherever it begins in the text that is encoded."""
    for before in range(3):
        bits = 8 * (before + len(key))
        # A character of six bits that the key shares with its neighbours depends on them.
        part = b64encode(bytes(before) + key).decode()[-(-8 * before // 6) : bits // 6]
        yield part
        yield part.replace("+", "-").replace("/", "_")


OPERATION = "chat"
ANSWERED = "answered"
CUT = "cut"
"""The outcome of a call that was given up: at a deadline, at the attempt's time limit, or with its caller."""


class InstrumentedProvider(Provider):
    """A provider with a span, an outcome and a duration for each call.

    Args:
        inner: The provider.
        base_url: Its address, by which spans name it. Empty: they have its name in the configuration.
    """

    def __init__(self, inner: Provider, base_url: str = "") -> None:
        self._inner = inner
        self._known_as = known_as(base_url) or inner.name
        self._server = server_attributes(base_url)
        self.name = inner.name
        self._labels = (inner.name, OPERATION, self._known_as)
        self.address = inner.address
        self.default_model = inner.default_model
        self.keeps = inner.keeps

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """The inner provider's answer, or what it raises."""
        outcome, begun = CUT, time.perf_counter()
        answer: Answer | None = None
        with tracing.span(f"{OPERATION} {call.model}", kind=SpanKind.CLIENT) as span:
            try:
                answer = await self._inner.complete(call, deadline)
                outcome = ANSWERED
            except ProviderError as fault:
                outcome = fault.kind.value
                tracing.fail(span, outcome)
                raise
            finally:
                ATTEMPTS.add(self.name, outcome)
                count_call(self._labels, time.perf_counter() - begun, call, answer)
                if span.is_recording():
                    _describe(span, self._asked(call), {} if answer is None else _answered(answer))
        return answer

    def _asked(self, call: Call) -> Mapping[str, AttributeValue | None]:
        sampling = call.sampling
        return {
            "gen_ai.operation.name": OPERATION,
            "gen_ai.provider.name": self._known_as,
            "dramaturg.provider.name": self.name,
            **self._server,
            "gen_ai.request.model": call.model,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.max_tokens": sampling.max_output_tokens,
            "gen_ai.request.seed": sampling.seed,
            "gen_ai.output.type": "json" if call.json_form is not None else "text",
            "gen_ai.input.messages": _messages(call.messages) if tracing.contents() else None,
        }

    async def models(self) -> Sequence[str]:
        """The names of the inner provider's models."""
        return await self._inner.models()

    async def close(self) -> None:
        """Closes the inner provider."""
        await self._inner.close()


def _answered(answer: Answer) -> Mapping[str, AttributeValue | None]:
    counts = answer.counts
    output: str | None = None
    if tracing.contents():
        output = _messages([Message(Role.ASSISTANT, answer.text or answer.refusal)])
    return {
        "gen_ai.response.model": answer.model or None,
        "gen_ai.response.finish_reasons": [answer.finish.value],
        "gen_ai.usage.input_tokens": counts.prompt if counts is not None else None,
        "gen_ai.usage.output_tokens": counts.completion if counts is not None else None,
        "gen_ai.usage.cache_read.input_tokens": counts.cached_prompt if counts is not None else None,
        "gen_ai.output.messages": output,
    }


def _describe(span: Span, *attributes: Mapping[str, AttributeValue | None]) -> None:
    span.set_attributes(
        {name: value for some in attributes for name, value in some.items() if value is not None}
    )


def _messages(messages: Sequence[Message]) -> str:
    text = json.dumps(
        [
            {"role": message.role.value, "parts": [{"type": "text", "content": message.texts}]}
            for message in messages
        ],
        ensure_ascii=False,
    )
    return text[:MAX_TEXT_LENGTH]
