"""Spans, and how they travel: W3C Trace Context (https://www.w3.org/TR/trace-context/).

Without a tracer nothing is recorded; what a caller says of its trace is still logged and passed on, so that a
service that does not trace leaves no gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

HEADERS = ("traceparent", "tracestate")
"""The metadata keys that carry a trace from hop to hop."""

Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value]
_NONE: Attributes = {}


class Kind(Enum):
    """What a span is of, in OpenTelemetry's words."""

    INTERNAL = 0
    SERVER = 1
    CLIENT = 2


class Ids(NamedTuple):
    """Names a span in hexadecimal digits."""

    trace_id: str
    span_id: str


class Span:
    """Something that takes time. One without a tracer does nothing."""

    __slots__ = ("_failed", "_span")

    def __init__(self, span: OtelSpan | None) -> None:
        self._span = span if span is not None and span.is_recording() else None
        self._failed = False

    @property
    def recording(self) -> bool:
        """Whether what is set is kept: for what costs more to find out than to set."""
        return self._span is not None

    def set(self, name: str, value: Value) -> None:
        """Sets an attribute."""
        if self._span is not None:
            self._span.set_attribute(name, value)

    def fail(self, error_type: str) -> None:
        """Says by what it failed, in a word of few values; the first word stands.

        Texts of errors have no place here: they may quote what is judged.
        """
        if self._span is not None and not self._failed:
            self._failed = True
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", error_type)
            self._span.set_status(StatusCode.ERROR)

    def end(self) -> None:
        """Ends it."""
        if self._span is not None:
            self._span.end()


_NO_SPAN = Span(None)
_tracer: Tracer | None = None
_contents = False
_passed_on: ContextVar[Mapping[str, str] | None] = ContextVar("dramaturg_trace", default=None)


def trace_with(tracer: Tracer | None, *, contents: bool = False) -> None:
    """Makes this process trace, or stop.

    Args:
        tracer: Makes the spans. None: there are none.
        contents: Whether spans may hold prompts and answers.
    """
    global _tracer, _contents
    _tracer, _contents = tracer, contents and tracer is not None


def contents() -> bool:
    """Whether spans may hold prompts and answers."""
    return _contents


def enter_call(metadata: Iterable[tuple[str, Any]], name: str, attributes: Attributes) -> Span:
    """Begins the span of a call that is served, under its caller's; it stays current in the call's task."""
    brought = dict(metadata)
    carried = {}
    for key in HEADERS:
        if isinstance(value := brought.get(key), str):
            carried[key] = value
    if _tracer is None:
        if carried:
            _passed_on.set(carried)
        return _NO_SPAN
    from opentelemetry import context, trace

    parent = _format().extract(carried) if carried else context.Context()
    span = _tracer.start_span(name, parent, trace.SpanKind.SERVER, attributes)
    context.attach(trace.set_span_in_context(span, parent))
    return Span(span)


def begin_call(name: str, attributes: Attributes) -> tuple[Span, Mapping[str, str]]:
    """Begins the span of a call that is made, under the current one.

    Returns:
        The span, which whoever makes the call ends, and the metadata that carries it.
    """
    if _tracer is None:
        return _NO_SPAN, _passed_on.get() or {}
    from opentelemetry import trace

    span = _tracer.start_span(name, kind=trace.SpanKind.CLIENT, attributes=attributes)
    carrier: dict[str, str] = {}
    _format().inject(carrier, trace.set_span_in_context(span))
    return Span(span), carrier


@contextmanager
def spanning(
    name: str, attributes: Attributes = _NONE, kind: Kind = Kind.INTERNAL, *, root: bool = False
) -> Iterator[Span]:
    """Makes a span within a ``with`` block, current there. An exception marks it failed by its class.

    Args:
        name: What is done, in words of few values.
        attributes: What is known of it.
        kind: What it is of.
        root: Whether it begins a trace of its own.
    """
    if _tracer is None:
        yield _NO_SPAN
        return
    from opentelemetry import context, trace

    parent = context.Context() if root else None
    made = _tracer.start_span(name, parent, trace.SpanKind[kind.name], attributes)
    span = Span(made)
    token = context.attach(trace.set_span_in_context(made, parent))
    try:
        yield span
    except BaseException as error:
        span.fail(type(error).__name__)
        raise
    finally:
        context.detach(token)
        span.end()


def ids() -> Ids | None:
    """The current span, where there is one, or the caller's where this process does not trace."""
    if _tracer is None:
        carried = _passed_on.get()
        if carried is None:
            return None
        parts = carried.get("traceparent", "").split("-")
        return Ids(parts[1], parts[2]) if len(parts) >= 4 else None
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return Ids(trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id))


@cache
def _format() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()
