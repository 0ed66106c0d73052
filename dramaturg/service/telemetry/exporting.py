"""Sends spans to a collector, in batches, from a thread of its own.

The OpenTelemetry SDK drops what its queue cannot hold and writes a line of the log for it. Here spans that
are dropped are counted, and none reaches a queue that is full.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from dramaturg.service.telemetry.instruments import Counter
from dramaturg.service.telemetry.settings import TracesSettings

SENT = Counter("dramaturg_spans_sent_total", "Spans that the collector took.")
DROPPED = Counter(
    "dramaturg_spans_dropped_total",
    'Spans that were lost: the queue was full ("queue"), or the collector did not take them ("collector").',
    ("reason",),
    shown=(("queue",), ("collector",)),
)

_BATCH = 512


def open_provider(
    service: str, settings: TracesSettings, exporter: SpanExporter | None = None
) -> TracerProvider:
    """What makes spans and sends them.

    Shutting it down sends what is left, and blocks for about ``settings.flush_seconds`` at most.

    Args:
        service: The name of the service, unless ``OTEL_SERVICE_NAME`` says another.
        settings: Where spans go and how many.
        exporter: Sends them. Absent: the one for the settings' endpoint.
    """
    attributes = {SERVICE_VERSION: version("dramaturg")}
    if not os.environ.get("OTEL_SERVICE_NAME"):
        attributes[SERVICE_NAME] = service
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
        resource=Resource.create(attributes),
        shutdown_on_exit=False,
    )
    sender = exporter or OTLPSpanExporter(settings.endpoint)
    provider.add_span_processor(BoundedProcessor(sender, settings.queue_size, settings.flush_seconds))
    return provider


class BoundedProcessor(SpanProcessor):
    """Hands spans to a batch processor while fewer than so many wait or are being sent.

    Args:
        exporter: Sends batches. To shut it down must end what it is sending.
        size: The most spans that may wait.
        flush_seconds: How long a shutdown may take to send what is left. The rest is dropped.
    """

    def __init__(self, exporter: SpanExporter, size: int, flush_seconds: float) -> None:
        self._size = size
        self._flush_seconds = flush_seconds
        self._waiting = 0
        self._lock = threading.Lock()
        self._exporter = _CountedExporter(exporter, self._left)
        self._batches = BatchSpanProcessor(
            self._exporter,
            max_queue_size=size,
            max_export_batch_size=min(size, _BATCH),
        )

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing is done with a span that begins."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queues a span, or drops it. Never waits for the collector."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._lock:
            full = self._waiting >= self._size
            self._waiting += not full
        if full:
            DROPPED.add("queue")
        else:
            self._batches.on_end(span)

    def shutdown(self) -> None:
        """Sends what is left, as far as it can be sent in time."""
        # The SDK waits for up to 30 seconds, whatever its variables say. An exporter that is shut down fails
        # its batches, the one under way too, and so ends the wait.
        late = threading.Timer(self._flush_seconds, self._exporter.shutdown)
        late.daemon = True
        late.start()
        try:
            self._batches.shutdown()  # type: ignore[no-untyped-call] # the SDK leaves it out
        finally:
            late.cancel()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Sends what waits."""
        return self._batches.force_flush(timeout_millis)

    def _left(self, count: int) -> None:
        with self._lock:
            self._waiting -= count


class _CountedExporter(SpanExporter):
    def __init__(self, exporter: SpanExporter, done: Callable[[int], None]) -> None:
        self._exporter = exporter
        self._done = done
        self._open = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends a batch, and counts it."""
        result = SpanExportResult.FAILURE
        try:
            if self._open:
                result = self._exporter.export(spans)
        finally:
            self._done(len(spans))
            if result is SpanExportResult.SUCCESS:
                SENT.add(amount=len(spans))
            else:
                DROPPED.add("collector", amount=len(spans))
        return result

    def shutdown(self) -> None:
        """Closes the connection, which ends the batch under way; later ones are not sent."""
        if self._open:
            self._open = False
            self._exporter.shutdown()
