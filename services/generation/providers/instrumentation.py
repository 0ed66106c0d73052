"""Metrics and spans of calls to providers.

Attributes are those of OpenTelemetry's semantic conventions for generative AI (``gen_ai.*``), for the
operation "chat".
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue

from dramaturg.service.telemetry import tracing
from dramaturg.service.telemetry.gen_ai import known_as, server_attributes
from dramaturg.service.telemetry.settings import MAX_TEXT_LENGTH
from services.generation.calls import Answer, Call, Message, Role
from services.generation.deadlines import Deadline
from services.generation.errors import ProviderError
from services.generation.metrics import ATTEMPTS, count_call
from services.generation.providers.base import Provider

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
            if span.is_recording():
                _set_all(span, self._asked(call))
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
                _set_all(span, _answered(answer))
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


def _set_all(span: Span, attributes: Mapping[str, AttributeValue | None]) -> None:
    span.set_attributes({name: value for name, value in attributes.items() if value is not None})


def _messages(messages: Sequence[Message]) -> str:
    text = json.dumps(
        [
            {"role": message.role.value, "parts": [{"type": "text", "content": message.texts}]}
            for message in messages
        ],
        ensure_ascii=False,
    )
    return text[:MAX_TEXT_LENGTH]
