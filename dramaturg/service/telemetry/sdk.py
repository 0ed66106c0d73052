"""The tracer provider of a process: OpenTelemetry's SDK, which sends spans by OTLP over gRPC."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_BSP_MAX_EXPORT_BATCH_SIZE, OTEL_BSP_MAX_QUEUE_SIZE
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from dramaturg.service.telemetry.instruments import Counter
from dramaturg.service.telemetry.settings import MAX_TEXT_LENGTH, TracesSettings

logger = logging.getLogger(__name__)

SENT = Counter("dramaturg_spans_sent_total", "Spans that the collector accepted.")
DROPPED = Counter(
    "dramaturg_spans_dropped_total",
    'Dropped spans: the queue was full ("queue"), or the collector refused them ("collector").',
    ("reason",),
    shown=(("queue",), ("collector",)),
)

# Spans with prompts and answers are large. Batches of these sizes stay below the 4 MiB that collectors
# accept, and a full queue takes 64 MiB.
_BATCH_WITH_CONTENTS, _QUEUE_WITH_CONTENTS = 8, 512
_BATCH, _QUEUE = 512, 2048  # the specification's


class Tracing:
    """The tracer provider of a process.

    The variables of OpenTelemetry's specification configure the rest.

    Args:
        service: The name of the service, unless ``OTEL_SERVICE_NAME`` sets another.
        settings: The endpoint and sampling of spans.

    Attributes:
        provider: Makes the spans.

    Raises:
        ValueError: The endpoint, or one of OpenTelemetry's variables, cannot be used.
    """

    def __init__(self, service: str, settings: TracesSettings) -> None:
        self._flush_seconds = settings.flush_seconds
        self._exporter = _CountingExporter(OTLPSpanExporter(settings.endpoint))
        self._processor = _CountingProcessor(self._exporter, contents=settings.contents)
        ratio = settings.sample_ratio
        self.provider = TracerProvider(
            sampler=None if ratio is None else ParentBasedTraceIdRatio(ratio),
            resource=_resource(service),
            span_limits=SpanLimits(max_attribute_length=MAX_TEXT_LENGTH),
            shutdown_on_exit=False,
        )
        self.provider.add_span_processor(self._processor)

    def shutdown(self) -> None:
        """Sends the queued spans; blocks for at most about ``settings.flush_seconds``."""
        timer = threading.Timer(self._flush_seconds, self._exporter.shutdown)
        timer.daemon = True
        timer.start()
        self.provider.shutdown()
        timer.cancel()


class _HashedResource(Resource):
    """A resource that computes its hash once. The SDK writes it as JSON for every span that it exports."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource.attributes, resource.schema_url)
        self._hash = hash(resource)

    def __hash__(self) -> int:
        return self._hash


def _resource(service: str) -> Resource:
    attributes = {SERVICE_VERSION: version("dramaturg")}
    if not os.environ.get("OTEL_SERVICE_NAME"):
        attributes[SERVICE_NAME] = service
    return _HashedResource(Resource.create(attributes))


def _number(variable: str, default: int) -> int:
    # The SDK takes its default for a value that is no number.
    value = os.environ.get(variable) or default
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{variable} is no whole number") from None


class _CountingExporter(SpanExporter):
    """Counts the spans that the collector accepted and those that it refused."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._closed = False
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        try:
            result = SpanExportResult.FAILURE if self._closed else self._exporter.export(spans)
        except Exception:
            logger.exception("spans cannot be sent")
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            SENT.add(amount=len(spans))
        else:
            DROPPED.add("collector", amount=len(spans))
        return result

    def shutdown(self) -> None:
        if not self._closed:
            self._closed = True
            # Fails the batch that is being sent.
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _CountingProcessor(BatchSpanProcessor):
    """Counts the spans for which the queue has no room. The SDK would drop the oldest, and count none."""

    def __init__(self, exporter: _CountingExporter, *, contents: bool) -> None:
        self._counted = exporter
        self._queued = 0
        self._queue_size = _number(OTEL_BSP_MAX_QUEUE_SIZE, _QUEUE_WITH_CONTENTS if contents else _QUEUE)
        batch = _number(OTEL_BSP_MAX_EXPORT_BATCH_SIZE, _BATCH_WITH_CONTENTS if contents else _BATCH)
        super().__init__(exporter, max_queue_size=self._queue_size, max_export_batch_size=batch)

    def on_end(self, span: ReadableSpan) -> None:
        if self._queued - self._counted.taken >= self._queue_size:
            DROPPED.add("queue")
            return
        self._queued += 1
        super().on_end(span)
