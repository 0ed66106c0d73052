"""The providers of a process: OpenTelemetry's SDK, which sends spans and events by OTLP.

Its exporters read the variables of OpenTelemetry. Events are log records of OTLP that are not made by the
SDK: that takes ten times as long, and a script has an event for each of its criteria. What the events of a
process have in common is encoded once.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.any_pb2 import Any as PackedAny
from google.protobuf.wrappers_pb2 import BytesValue
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    LogRecordExporter,
    LogRecordExportResult,
)
from opentelemetry.sdk.environment_variables import (
    OTEL_BLRP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BLRP_MAX_QUEUE_SIZE,
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_EXPORTER_OTLP_ENDPOINT,
    OTEL_EXPORTER_OTLP_LOGS_ENDPOINT,
    OTEL_EXPORTER_OTLP_PROTOCOL,
)
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import SpanContext
from opentelemetry.util.types import AttributeValue

from dramaturg.service.telemetry.instruments import Counter
from dramaturg.service.telemetry.settings import MAX_TEXT_LENGTH, TracesSettings
from dramaturg.service.telemetry.tracing import SCOPE, Event

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpExporter


class Requests:
    """Makes the requests that hand events over.

    Args:
        resource: The attributes of the process.
        schema_url: The schema of these.
        scope: The instrumentation scope of the events.
    """

    def __init__(self, resource: Mapping[str, AttributeValue], schema_url: str, scope: str) -> None:
        described = ResourceMessage(attributes=[_pair(*attribute) for attribute in resource.items()])
        self._resource = ResourceLogs(resource=described, schema_url=schema_url).SerializeToString()
        self._scope = ScopeLogs(scope=InstrumentationScope(name=scope)).SerializeToString()

    def __call__(self, records: Sequence[bytes]) -> bytes:
        """An encoded ``ExportLogsServiceRequest`` with a batch of events."""
        return _first_field(self._resource + _second_field(b"".join((self._scope, *records))))


def records(name: str, events: Iterable[Event], span: SpanContext) -> Iterator[bytes]:
    """Events that happen now, each encoded as a member ``log_records`` of ``ScopeLogs``."""
    now = time.time_ns()
    made = LogRecord(
        time_unix_nano=now,
        observed_time_unix_nano=now,
        event_name=name,
        trace_id=span.trace_id.to_bytes(16, "big"),
        span_id=span.span_id.to_bytes(8, "big"),
        flags=span.trace_flags,
    ).SerializeToString()
    # Encoded messages one after the other are merged when they are read; repeated fields are appended.
    for shared, own in events:
        yield _second_field(b"".join((made, _kept(*shared.items()), *(_own(*one) for one in own.items()))))


# A message within another is encoded as bytes are. These two well-known messages have the field numbers of
# "ExportLogsServiceRequest.resource_logs", and of "ResourceLogs.scope_logs" and "ScopeLogs.log_records".
def _first_field(encoded: bytes) -> bytes:
    return BytesValue(value=encoded).SerializeToString()


def _second_field(encoded: bytes) -> bytes:
    return PackedAny(value=encoded).SerializeToString()


def _encoded(*attributes: tuple[str, AttributeValue]) -> bytes:
    """A log record with nothing but these attributes."""
    return LogRecord(attributes=[_pair(*one) for one in attributes]).SerializeToString()


_kept = lru_cache(2048)(_encoded)


def _own(name: str, value: AttributeValue) -> bytes:
    is_kept = len(value) <= _LONGEST_KEPT if isinstance(value, str) else isinstance(value, int | float)
    return _kept_one(name, value) if is_kept else _encoded((name, value))


@lru_cache(2048, typed=True)  # 1 is not 1.0
def _kept_one(name: str, value: AttributeValue) -> bytes:
    return _encoded((name, value))


_LONGEST_KEPT = 100
"""The longest text that is kept encoded, in characters: an explanation comes once."""


def _pair(name: str, value: AttributeValue) -> KeyValue:
    if isinstance(value, Sequence) and not isinstance(value, str):
        array = ArrayValue(values=[_any(one) for one in value])
        return KeyValue(key=name, value=AnyValue(array_value=array))
    return KeyValue(key=name, value=_any(value))


def _any(value: object) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(double_value=value) if isinstance(value, float) else AnyValue(string_value=str(value))


logger = logging.getLogger(__name__)

_REASONS = (("queue",), ("collector",))
SENT = Counter("dramaturg_spans_sent_total", "Spans that the collector accepted.")
DROPPED = Counter(
    "dramaturg_spans_dropped_total",
    'Dropped spans: the queue was full ("queue"), or the collector refused them ("collector").',
    ("reason",),
    shown=_REASONS,
)
EVENTS_SENT = Counter("dramaturg_events_sent_total", "Events of verdicts that the collector accepted.")
EVENTS_DROPPED = Counter(
    "dramaturg_events_dropped_total",
    'Dropped events: the queue was full ("queue"), or the collector refused them ("collector").',
    ("reason",),
    shown=_REASONS,
)

GRPC, _HTTP = "grpc", "http/protobuf"
_GRACE_SECONDS = 0.2
"""The time in which a batch that is being sent ends once its exporter is shut down."""

# Spans with prompts and answers are large. Batches of these sizes stay below the 4 MiB that collectors
# accept, and a full queue takes 64 MiB.
_BATCH_WITH_CONTENTS, _QUEUE_WITH_CONTENTS = 8, 512
_BATCH, _QUEUE = 512, 2048  # the specification's


_EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
_NOT_THERE = frozenset({404, 405, 501})


class TakesNoEventsError(Exception):
    """The collector takes no events at all."""


class GrpcEvents(OTLPLogExporter):
    """Sends batches of encoded events over gRPC."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        super().__init__()

    def _translate_data(self, data: Sequence[Any]) -> Any:
        return self._requests(data)

    # The exporter sets its client anew with every channel. Its own one would encode messages.
    @property
    def _client(self) -> Any:
        return self

    @_client.setter
    def _client(self, client: object) -> None:
        channel: Any = self._channel
        self._call: Any = None if client is None else channel.unary_unary(_EXPORT)

    def Export(self, request: bytes, metadata: Any, timeout: float) -> None:
        """Sends a request once.

        Raises:
            grpc.RpcError: It failed.
            TakesNoEventsError: The collector has no such method.
        """
        try:
            self._call(request, metadata=metadata, timeout=timeout)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                raise TakesNoEventsError from error
            raise


class HttpEvents(LogRecordExporter):
    """Sends batches of encoded events over HTTP.

    Args:
        exporter: Has the connections.
        requests: Makes the requests.
    """

    def __init__(self, exporter: HttpExporter, requests: Requests) -> None:
        self._exporter = exporter
        self._requests = requests

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        """Sends a batch.

        Raises:
            TakesNoEventsError: The collector has no such path.
        """
        result = self._exporter._client.export(self._requests(batch))
        if result.status_code in _NOT_THERE:
            raise TakesNoEventsError
        return LogRecordExportResult.SUCCESS if result.success else LogRecordExportResult.FAILURE

    def shutdown(self) -> None:
        """Ends the connections."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call] # the package leaves it out

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Does nothing: nothing is kept here."""
        del timeout_millis
        return True


class Tracing:
    """The tracer and logger providers of a process.

    The variables of OpenTelemetry's specification configure the rest.

    Args:
        service: The name of the service, unless ``OTEL_SERVICE_NAME`` sets another.
        settings: The endpoint and sampling of spans.

    Attributes:
        provider: Makes the spans.
        events: Sends the events. ``None``: no collector takes them.

    Raises:
        ImportError: The exporter of the protocol is not installed.
        ValueError: The endpoint, or one of OpenTelemetry's variables, cannot be used.
    """

    def __init__(self, service: str, settings: TracesSettings) -> None:
        self._flush_seconds = settings.flush_seconds
        resource, ratio = resource_of(service), settings.sample_ratio
        exporter = _span_exporter(settings)
        self._exporters = [exporter]
        self.provider = TracerProvider(
            sampler=None if ratio is None else ParentBasedTraceIdRatio(ratio),
            resource=resource,
            span_limits=SpanLimits(max_attribute_length=MAX_TEXT_LENGTH),
            shutdown_on_exit=False,
        )
        self.provider.add_span_processor(_CountingProcessor(exporter, contents=settings.contents))
        self.events = None
        if _takes_events():
            taking = _event_exporter(Requests(resource.attributes, resource.schema_url, SCOPE))
            self._exporters.append(taking)
            self.events = _CountingEvents(taking, contents=settings.contents)

    def shutdown(self) -> None:
        """Sends the queued spans and events; blocks for at most about ``settings.flush_seconds``."""
        providers = [one for one in (self.provider, self.events) if one is not None]
        ending = [threading.Thread(target=one.shutdown, daemon=True) for one in providers]
        for thread in ending:
            thread.start()
        deadline = time.monotonic() + self._flush_seconds
        for thread in ending:
            thread.join(max(0.0, deadline - time.monotonic()))
        for exporter in self._exporters:
            exporter.shutdown()
        for thread in ending:
            # A request over HTTP ends at its own time limit, so it is given up.
            thread.join(_GRACE_SECONDS)
        for exporter in self._exporters:
            exporter.give_up()


def protocol_of(signal: str) -> str:
    """The protocol by which a signal is sent, "grpc" or "http/protobuf"."""
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", OTEL_EXPORTER_OTLP_PROTOCOL):
        if protocol := os.environ.get(name):
            if protocol not in {GRPC, _HTTP}:
                raise ValueError(f"{name} is none of {GRPC}, {_HTTP}")
            return protocol
    return GRPC


def _takes_events() -> bool:
    """Whether there is a collector of events: an endpoint of traces is one of spans alone."""
    if os.environ.get("OTEL_LOGS_EXPORTER", "").lower() == "none":
        return False
    return any(map(os.environ.get, (OTEL_EXPORTER_OTLP_LOGS_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT)))


# The packages of exporters are imported where they are used: that of HTTP takes 0.1 s to load.
def _span_exporter(settings: TracesSettings) -> _CountingExporter:
    # None: the exporter reads OpenTelemetry's variables.
    endpoint = settings.endpoint if "endpoint" in settings.model_fields_set else None
    exporter: SpanExporter
    if protocol_of("TRACES") == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter(endpoint)
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter as HttpExporter,
        )

        exporter = HttpExporter(endpoint and endpoint.rstrip("/") + "/v1/traces")
    return _CountingExporter(exporter, SENT, DROPPED, SpanExportResult)


def _event_exporter(requests: Requests) -> _CountingExporter:
    exporter: LogRecordExporter
    if protocol_of("LOGS") == GRPC:
        exporter = GrpcEvents(requests)
    else:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

        exporter = HttpEvents(OTLPLogExporter(), requests)
    return _CountingExporter(exporter, EVENTS_SENT, EVENTS_DROPPED, LogRecordExportResult)


class _HashedResource(Resource):
    """A resource that computes its hash once. The SDK writes it as JSON for every span that it exports."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource.attributes, resource.schema_url)
        self._hash = hash(resource)

    def __hash__(self) -> int:
        return self._hash


def resource_of(service: str) -> Resource:
    """What the telemetry of a process says of its origin."""
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


class _CountingExporter(SpanExporter, LogRecordExporter):
    """Counts what the collector accepted and what it refused.

    Args:
        exporter: Sends spans or events.
        sent: Counts those accepted.
        dropped: Counts those refused.
        results: The results of the exporter.

    Attributes:
        taking: Whether the collector takes what is sent. False: it has said that it never does.
    """

    def __init__(self, exporter: Any, sent: Counter, dropped: Counter, results: Any) -> None:
        self._exporter = exporter
        self._sent = sent
        self._dropped = dropped
        self._results = results
        self.taking = True
        self._closed = False
        self._admitted = self._taken = self._ended = 0
        self._ending = threading.Lock()

    def admits(self, queue_size: int) -> bool:
        """Whether the queue has room for one more. The SDK would drop the oldest, and count none."""
        if self._admitted - self._taken >= queue_size:
            self._dropped.add("queue")
            return False
        self._admitted += 1
        return True

    def export(self, batch: Sequence[Any]) -> Any:
        self._taken += len(batch)
        try:
            refused = self._closed or not self.taking
            result = self._results.FAILURE if refused else self._exporter.export(batch)
        except TakesNoEventsError:
            # It would refuse every batch for ever.
            self.taking = False
            logger.warning("the collector takes no events: none is sent any more")
            result = self._results.FAILURE
        except Exception:
            logger.exception("telemetry cannot be sent")
            result = self._results.FAILURE
        self._end(len(batch), accepted=result is self._results.SUCCESS)
        return result

    def _end(self, count: int, *, accepted: bool) -> None:
        with self._ending:
            count = min(count, self._admitted - self._ended)  # a batch that was given up is counted
            self._ended += count
            if accepted:
                self._sent.add(amount=count)
            else:
                self._dropped.add("collector", amount=count)

    def give_up(self) -> None:
        """Counts all that is left as refused."""
        self._end(self._admitted - self._ended, accepted=False)

    def shutdown(self) -> None:
        if not self._closed:
            self._closed = True
            # Fails the batch that is being sent.
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))


class _CountingProcessor(BatchSpanProcessor):
    """Sends spans in batches, and counts those that its queue has no room for."""

    def __init__(self, exporter: _CountingExporter, *, contents: bool) -> None:
        size = _number(OTEL_BSP_MAX_QUEUE_SIZE, _QUEUE_WITH_CONTENTS if contents else _QUEUE)
        batch = _number(OTEL_BSP_MAX_EXPORT_BATCH_SIZE, _BATCH_WITH_CONTENTS if contents else _BATCH)
        self._counted, self._size = exporter, size
        super().__init__(exporter, max_queue_size=size, max_export_batch_size=batch)

    def on_end(self, span: ReadableSpan) -> None:
        if self._counted.admits(self._size):
            super().on_end(span)


class _CountingEvents(BatchLogRecordProcessor):
    """Sends events in batches, and counts those that its queue has no room for."""

    def __init__(self, exporter: _CountingExporter, *, contents: bool) -> None:
        size = _number(OTEL_BLRP_MAX_QUEUE_SIZE, _QUEUE_WITH_CONTENTS if contents else _QUEUE)
        batch = _number(OTEL_BLRP_MAX_EXPORT_BATCH_SIZE, _BATCH_WITH_CONTENTS if contents else _BATCH)
        self._counted, self._size = exporter, size
        super().__init__(exporter, max_queue_size=size, max_export_batch_size=batch)

    @property
    def taking(self) -> bool:
        """Whether the collector takes events, as far as it is known."""
        return self._counted.taking

    def send(self, name: str, events: Iterable[Event], span: SpanContext) -> None:
        """Queues events of a span without waiting."""
        for one in records(name, events, span):
            if self._counted.admits(self._size):
                # Batches are of any items; those of the SDK take long to make and to encode.
                self._batch_processor.emit(one)  # type: ignore[arg-type]
