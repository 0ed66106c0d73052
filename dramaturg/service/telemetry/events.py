"""Events of OpenTelemetry: log records with a name, which belong to a trace.

Events are sent by what ``telemetry`` installs; without it there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from opentelemetry import trace
from opentelemetry.trace import SpanContext
from opentelemetry.util.types import AttributeValue

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


def configure(sender: Sender | None) -> None:
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
