"""The providers of a process: OpenTelemetry's SDK, which sends spans and events by OTLP.

Its exporters read the variables of OpenTelemetry. Spans and events are encoded here, and attributes that come
again are encoded once: the encoders of the exporters make a message of every attribute. Events are records of
OTLP that are not made by the SDK, which makes an object of each: a script has an event for each criterion.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as PackedAny
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BytesValue
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags
from opentelemetry.proto.trace.v1.trace_pb2 import Status as StatusMessage
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
from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext, SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

from dramaturg.service.telemetry.instruments import Counter
from dramaturg.service.telemetry.settings import MAX_TEXT_LENGTH, TracesSettings
from dramaturg.service.telemetry.tracing import SCOPE, Event


class Requests:
    """Makes the requests that hand events and spans over.

    The messages of both have the same field numbers.

    Args:
        resource: The attributes of the process.
        schema_url: The schema of these.
        scope: The instrumentation scope of the events and spans that are made here.
    """

    def __init__(self, resource: Mapping[str, AttributeValue], schema_url: str, scope: str) -> None:
        described = ResourceMessage(attributes=[_pair(*attribute) for attribute in resource.items()])
        self._resource = ResourceLogs(resource=described, schema_url=schema_url).SerializeToString()
        self._name = scope
        self._scope = ScopeLogs(scope=InstrumentationScope(name=scope)).SerializeToString()

    def __call__(self, records: Iterable[bytes]) -> bytes:
        """An encoded ``ExportLogsServiceRequest`` with a batch of events."""
        return _first_field(self._resource + _second_field(b"".join((self._scope, *records))))

    def of_spans(self, spans: Iterable[ReadableSpan]) -> bytes:
        """An encoded ``ExportTraceServiceRequest`` with a batch of spans."""
        own: list[ReadableSpan] = []
        others: list[ReadableSpan] = []
        for span in spans:
            scope = span.instrumentation_scope
            made_here = scope is not None and scope.name == self._name and not scope.version
            (others if span.events or span.links or not made_here else own).append(span)
        request = self(map(_span, own)) if own else b""
        # Spans that a program makes with the API itself may have anything.
        return request + encode_spans(others).SerializeToString() if others else request


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
        yield _second_field(
            b"".join((made, _kept(*shared.items()), *(_own(LogRecord, *one) for one in own.items())))
        )


_KINDS = {kind: SpanMessage.SpanKind.Value(f"SPAN_KIND_{kind.name}") for kind in SpanKind}
_CODES = {code: StatusMessage.StatusCode.Value(f"STATUS_CODE_{code.name}") for code in StatusCode}
_REMOTE = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


def _span(span: ReadableSpan) -> bytes:
    """A span without events and links, encoded as a member ``spans`` of ``ScopeSpans``."""
    named, parent = span.context or INVALID_SPAN_CONTEXT, span.parent
    is_remote = parent is not None and parent.is_remote
    made = SpanMessage(
        trace_id=named.trace_id.to_bytes(16, "big"),
        span_id=named.span_id.to_bytes(8, "big"),
        trace_state=named.trace_state.to_header(),
        parent_span_id=b"" if parent is None else parent.span_id.to_bytes(8, "big"),
        name=span.name,
        kind=_KINDS[span.kind],
        start_time_unix_nano=span.start_time or 0,
        end_time_unix_nano=span.end_time or 0,
        status=StatusMessage(code=_CODES[span.status.status_code], message=span.status.description or ""),
        dropped_attributes_count=span.dropped_attributes,
        flags=_REMOTE if is_remote else SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK,
    ).SerializeToString()
    attributes = (span.attributes or {}).items()
    return _second_field(b"".join((made, *(_own(SpanMessage, *one) for one in attributes))))


# A message within another is encoded as bytes are. These two well-known messages have the field numbers of
# "ExportLogsServiceRequest.resource_logs", and of "ResourceLogs.scope_logs" and "ScopeLogs.log_records".
def _first_field(encoded: bytes) -> bytes:
    return BytesValue(value=encoded).SerializeToString()


def _second_field(encoded: bytes) -> bytes:
    return PackedAny(value=encoded).SerializeToString()


def _encoded(item: Any, *attributes: tuple[str, AttributeValue]) -> bytes:
    """A log record or a span, by the class of its message, with nothing but these attributes."""
    made: Message = item(attributes=[_pair(*one) for one in attributes])
    return made.SerializeToString()


@lru_cache(2048)
def _kept(*attributes: tuple[str, str | tuple[str, ...]]) -> bytes:
    return _encoded(LogRecord, *attributes)


def _own(item: Any, name: str, value: AttributeValue) -> bytes:
    is_kept = len(value) <= _LONGEST_KEPT if isinstance(value, str) else isinstance(value, int | float)
    return _kept_one(item, name, value) if is_kept else _encoded(item, (name, value))


@lru_cache(4096, typed=True)  # 1 is not 1.0
def _kept_one(item: Any, name: str, value: AttributeValue) -> bytes:
    return _encoded(item, (name, value))


_LONGEST_KEPT = 100
"""The longest text that is kept encoded, in characters: an explanation comes once."""


def _pair(name: str, value: object) -> KeyValue:
    return KeyValue(key=name, value=_any(value))


def _any(value: object) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, Sequence):
        return AnyValue(array_value=ArrayValue(values=map(_any, value)))
    if isinstance(value, Mapping):
        return AnyValue(kvlist_value=KeyValueList(values=[_pair(*one) for one in value.items()]))
    return AnyValue()


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


class GrpcSpans(OTLPSpanExporter):
    """Sends batches of spans over gRPC."""

    def __init__(self, endpoint: str | None, requests: Requests) -> None:
        self._requests = requests
        super().__init__(endpoint)

    def _translate_data(self, data: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
        return ExportTraceServiceRequest.FromString(self._requests.of_spans(data))


class HttpBatches(SpanExporter, LogRecordExporter):
    """Sends batches of spans or events over HTTP.

    Args:
        exporter: Has the connections.
        encode: Makes the request with a batch.
        results: The results of the exporter.
        ends_at: The status codes that say that the collector has no such path.
    """

    def __init__(
        self,
        exporter: Any,
        encode: Callable[[Sequence[Any]], bytes],
        results: Any,
        ends_at: frozenset[int] = frozenset(),
    ) -> None:
        self._exporter = exporter
        self._encode = encode
        self._results = results
        self._ends_at = ends_at

    def export(self, batch: Sequence[Any]) -> Any:
        """Sends a batch.

        Raises:
            TakesNoEventsError: The collector has no such path.
        """
        result = self._exporter._client.export(self._encode(batch))
        if result.status_code in self._ends_at:
            raise TakesNoEventsError
        return self._results.SUCCESS if result.success else self._results.FAILURE

    def shutdown(self) -> None:
        """Ends the connections."""
        self._exporter.shutdown()

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
        requests = Requests(resource.attributes, resource.schema_url, SCOPE)
        exporter = _span_exporter(settings, requests)
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
            taking = _event_exporter(requests)
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
def _span_exporter(settings: TracesSettings, requests: Requests) -> _CountingExporter:
    # None: the exporter reads OpenTelemetry's variables.
    endpoint = settings.endpoint if "endpoint" in settings.model_fields_set else None
    exporter: SpanExporter
    if protocol_of("TRACES") == GRPC:
        exporter = GrpcSpans(endpoint, requests)
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter as HttpExporter,
        )

        sending = HttpExporter(endpoint and endpoint.rstrip("/") + "/v1/traces")
        exporter = HttpBatches(sending, requests.of_spans, SpanExportResult)
    return _CountingExporter(exporter, SENT, DROPPED, SpanExportResult)


def _event_exporter(requests: Requests) -> _CountingExporter:
    exporter: LogRecordExporter
    if protocol_of("LOGS") == GRPC:
        exporter = GrpcEvents(requests)
    else:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

        exporter = HttpBatches(OTLPLogExporter(), requests, LogRecordExportResult, _NOT_THERE)
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
