"""Events of OpenTelemetry: log records with a name, which belong to a trace.

Events are emitted by the logger that ``telemetry`` installs; without one there are none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan

if TYPE_CHECKING:
    from opentelemetry._logs import Logger
    from opentelemetry.util.types import AttributeValue

_logger: Logger | None = None


def configure(logger: Logger | None) -> None:
    """Sets the logger of all events. ``None``: none is emitted."""
    global _logger
    _logger = logger


def emitting() -> bool:
    """Whether an event is emitted now: there is a collector, and the current trace is recorded."""
    return _logger is not None and trace.get_current_span().is_recording()


def emit(name: str, attributes: Mapping[str, AttributeValue]) -> None:
    """Emits an event.

    It belongs to the span of the caller, where the current call has one: the operation that the caller names
    by its ``traceparent`` is what is evaluated. Otherwise it belongs to the current span.

    Args:
        name: The event.
        attributes: Its attributes.
    """
    if _logger is None:
        return
    from opentelemetry._logs import LogRecord

    span = trace.get_current_span()
    parent = getattr(span, "parent", None)
    if parent is not None and parent.is_remote:
        span = NonRecordingSpan(parent)
    context = trace.set_span_in_context(span, Context())
    _logger.emit(
        LogRecord(timestamp=time.time_ns(), context=context, event_name=name, attributes=dict(attributes))
    )
