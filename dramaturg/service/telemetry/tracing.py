"""Spans and events of OpenTelemetry's API, their names, and the trace that calls belong to.

Spans are made with the API alone, by the tracer provider of the process: the one that ``telemetry`` installs,
or the one that the program that embeds a service has installed itself. Without a provider no span is
recorded, and the trace of a caller is still logged and passed on. The current span is that of OpenTelemetry's
context, so spans that a service makes with the API itself belong to the same trace.

Events are log records with a name, which belong to a trace. They are sent by what ``telemetry`` installs;
without it there are none.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Token
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

_PROVIDERS: Mapping[str, str] = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "api.cohere.com": "cohere",
    "api.cohere.ai": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "models.ai.azure.com": "azure.ai.inference",
    "ml.cloud.ibm.com": "ibm.watsonx.ai",
}
"""The well-known values of ``gen_ai.provider.name`` by the host, or the domain, of the provider's address."""


def server_attributes(base_url: str) -> Mapping[str, str | int]:
    """The attributes of the address that a provider is called at. An empty address has none."""
    parts = urlsplit(base_url)
    if not parts.hostname:
        return {}
    return {
        "server.address": parts.hostname,
        "server.port": parts.port or {"http": 80}.get(parts.scheme, 443),
    }


def known_as(base_url: str) -> str:
    """The provider's name in the conventions. Empty: they do not know it."""
    host = urlsplit(base_url).hostname or ""
    # A region stands before the name of Vertex AI: "europe-west4-aiplatform.googleapis.com".
    if host.startswith("bedrock-runtime") and host.endswith(".amazonaws.com"):
        return "aws.bedrock"
    host = host if not host.endswith("-aiplatform.googleapis.com") else "aiplatform.googleapis.com"
    return next(
        (name for domain, name in _PROVIDERS.items() if host == domain or host.endswith(f".{domain}")), ""
    )


Event = tuple[Mapping[str, str | tuple[str, ...]], Mapping[str, AttributeValue]]
"""The attributes of an event: texts that many events share, which are encoded once, and those of its own."""


class Sender(Protocol):
    """Sends events to a collector."""

    @property
    def taking(self) -> bool:
        """Whether the collector takes events, as far as it is known."""

    def send(self, name: str, events: Iterable[Event], span: SpanContext) -> None:
        """Queues events of a span without waiting."""


_sender: Sender | None = None


def configure_events(sender: Sender | None) -> None:
    """Sets the sender of all events. ``None``: none is emitted."""
    global _sender
    _sender = sender


def emitting() -> bool:
    """Whether an event is emitted now: a collector takes events, and the current trace is recorded."""
    return _sender is not None and _sender.taking and trace.get_current_span().is_recording()


def emit(name: str, events: Iterable[Event]) -> None:
    """Emits events that happen now.

    They belong to the span of the caller, where the current call has one: the operation that the caller names
    by its ``traceparent`` is what is evaluated. Otherwise they belong to the current span.

    Args:
        name: The name of all the events.
        events: Their attributes.
    """
    if _sender is None:
        return
    span = trace.get_current_span()
    parent = getattr(span, "parent", None)
    named = parent if parent is not None and parent.is_remote else span.get_span_context()
    _sender.send(name, events, named)


SCOPE = "dramaturg"
"""The instrumentation scope of the spans."""

Attributes = Mapping[str, AttributeValue]
"""Names and values of a span's attributes."""

_PROPAGATOR = TraceContextTextMapPropagator()
_TRACEPARENT, _TRACESTATE = "traceparent", "tracestate"
_MAX_STATE_LENGTH = 512  # W3C Trace Context, section 3.3.1.5: this much is to be passed on
_FAILED = Status(StatusCode.ERROR)

_tracer = trace.get_tracer(SCOPE)
_contents = False


class Ids(NamedTuple):
    """Names a span in hexadecimal digits."""

    trace_id: str
    span_id: str


def configure(provider: TracerProvider | None, *, contents: bool = False) -> None:
    """Sets the provider of the spans that this package makes.

    Args:
        provider: Makes the spans. ``None``: the global one of OpenTelemetry's API.
        contents: Whether spans may hold prompts and answers.
    """
    global _tracer, _contents
    _tracer = trace.get_tracer(SCOPE) if provider is None else provider.get_tracer(SCOPE)
    _contents = contents


def contents() -> bool:
    """Whether spans may hold prompts and answers."""
    return _contents


@contextmanager
def span(
    name: str, attributes: Attributes | None = None, kind: SpanKind = SpanKind.INTERNAL, *, root: bool = False
) -> Iterator[Span]:
    """Makes a span within a ``with`` block, current there. An exception marks it failed by its class.

    Args:
        name: The operation; few distinct values.
        attributes: Its attributes.
        kind: Its kind.
        root: Whether it begins a trace of its own.
    """
    parent = Context() if root else None
    made = _tracer.start_span(name, parent, kind, attributes)
    token = contexts.attach(trace.set_span_in_context(made, parent))
    try:
        yield made
    except BaseException as error:
        fail(made, type(error).__name__)
        raise
    finally:
        contexts.detach(token)
        made.end()


@contextmanager
def untraced() -> Iterator[None]:
    """Makes calls within a ``with`` block that belong to no trace, for example regular checks.

    The parent of their spans is one that is not sampled, here and in the services that are called.
    """
    parent = SpanContext(_random(128), _random(64), is_remote=False)
    token = contexts.attach(trace.set_span_in_context(NonRecordingSpan(parent), Context()))
    try:
        yield
    finally:
        contexts.detach(token)


def _random(bits: int) -> int:
    return random.getrandbits(bits) or 1


def fail(span: Span, error_type: str) -> None:
    """Marks a span failed. The first call counts.

    Messages of errors are not recorded: they may quote judged texts.

    Args:
        span: The span.
        error_type: The attribute ``error.type``; few distinct values.
    """
    if span.is_recording() and getattr(span, "status", None) != _FAILED:
        span.set_attribute("error.type", error_type)
        span.set_status(_FAILED)


def set_code(span: Span, code: str, *, failed: bool) -> None:
    """Sets the status code that a call ended with.

    Args:
        span: The span of the call.
        code: The name of the code.
        failed: Whether the span is marked failed.
    """
    span.set_attribute("rpc.response.status_code", code)
    if failed:
        fail(span, code)


def start_server_span(
    metadata: Iterable[tuple[str, Any]], name: str, attributes: Attributes
) -> tuple[Span, Token[Context] | None]:
    """Starts the span of a call that is served, under its caller's, and makes it current.

    Args:
        metadata: The metadata of the call.
        name: The method.
        attributes: The span's attributes.

    Returns:
        The span, and the token for [end_server_span]; ``None`` where the call belongs to no trace.
    """
    parent = _extract(metadata)
    made = _tracer.start_span(name, parent, SpanKind.SERVER, attributes)
    if not made.get_span_context().is_valid:
        return made, None
    return made, contexts.attach(trace.set_span_in_context(made, parent))


def end_server_span(span: Span, token: Token[Context] | None) -> None:
    """Ends a span that [start_server_span] started, in the same task."""
    if token is not None:
        contexts.detach(token)
        span.end()


def start_client_span(name: str, attributes: Attributes) -> tuple[Span, Sequence[tuple[str, str]]]:
    """Starts the span of a call that is made, under the current one. It does not become current.

    Returns:
        The span, which the caller ends, and the metadata that carries it; none where there is no trace.
    """
    made = _tracer.start_span(name, None, SpanKind.CLIENT, attributes)
    named = made.get_span_context()
    if not named.is_valid:
        return made, ()
    state = ((_TRACESTATE, named.trace_state.to_header()),) if named.trace_state else ()
    return made, ((_TRACEPARENT, _traceparent(named)), *state)


def ids() -> Ids | None:
    """The current span, recorded or not; ``None`` outside of any trace."""
    current = trace.get_current_span().get_span_context()
    if not current.is_valid:
        return None
    return Ids(f"{current.trace_id:032x}", f"{current.span_id:016x}")


def headers() -> Mapping[str, str]:
    """The header ``traceparent`` of the current span, for a server outside; none outside of any trace.

    ``tracestate`` stays here: it holds data of the caller's own tracing.
    """
    current = trace.get_current_span().get_span_context()
    return {_TRACEPARENT: _traceparent(current)} if current.is_valid else {}


def _traceparent(span: SpanContext) -> str:
    """The header's value (W3C Trace Context, section 3.2.2)."""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


_EMPTY = Context()


def _extract(metadata: Iterable[tuple[str, Any]]) -> Context:
    """The context of the caller's span; an empty one where the metadata names none."""
    carrier: dict[str, str] = {}
    for key, value in metadata:
        if key in (_TRACEPARENT, _TRACESTATE) and isinstance(value, str):
            # A channel adds its headers behind those that the caller states: the last one counts.
            carrier[key] = f"{carrier[key]},{value}" if key == _TRACESTATE and key in carrier else value
    if _TRACEPARENT not in carrier:
        return _EMPTY
    if len(carrier.get(_TRACESTATE, "")) > _MAX_STATE_LENGTH:
        # Metadata above 8 KiB would fail the calls that are made for this one.
        del carrier[_TRACESTATE]
    return _PROPAGATOR.extract(carrier, _EMPTY)
