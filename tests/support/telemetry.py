"""A collector of spans and events, and a reader of metrics."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from aiohttp import web
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import SpanKind
from opentelemetry.util._once import Once
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dramaturg.service.telemetry import instruments, tracing
from tests.support.http_servers import serve_http

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Span:
    """A span as it was sent."""

    service: str
    name: str
    kind: SpanKind
    trace_id: str
    span_id: str
    parent_id: str
    """Empty: it begins a trace."""
    began: int
    """In nanoseconds since the epoch."""
    ended: int
    state: str
    """What vendors carry along."""
    attributes: Mapping[str, Any]
    failed: bool
    raw: bytes
    """All of it."""


@dataclass(frozen=True)
class Event:
    """An event as it was sent."""

    service: str
    name: str
    trace_id: str
    span_id: str
    attributes: Mapping[str, Any]


@dataclass
class Collector:
    """What a collector took.

    Attributes:
        target: Where it is reached over gRPC.
        url: Where it is reached over HTTP.
        spans: Every span, in the order in which they came.
        events: Every event, in the order in which they came.
        metrics: The last state of all metrics, by name.
        raw: What came, as bytes.
        metadata: What came along, request by request.
        refusals: How many requests it will not take for now.
    """

    target: str = ""
    url: str = ""
    refusals: int = 0
    spans: list[Span] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    metrics: dict[str, metrics_pb2.Metric] = field(default_factory=dict)
    raw: list[bytes] = field(default_factory=list)
    metadata: list[Mapping[str, Any]] = field(default_factory=list)

    async def Export(self, request: Any, context: Any) -> Any:
        """Takes spans or events over gRPC."""
        if self.refusals:
            self.refusals -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE)
        return self.take(request, dict(context.invocation_metadata()))

    async def post(self, request: web.Request) -> web.Response:
        """Takes spans or events over HTTP."""
        if request.content_type != "application/x-protobuf":
            return web.Response(status=415)
        if self.refusals:
            self.refusals -= 1
            return web.Response(status=503)
        message: Any = {
            "/v1/traces": trace_service_pb2.ExportTraceServiceRequest,
            "/v1/logs": logs_service_pb2.ExportLogsServiceRequest,
            "/v1/metrics": metrics_service_pb2.ExportMetricsServiceRequest,
        }[request.path]()
        message.ParseFromString(await request.read())
        answer = self.take(message, {name.lower(): value for name, value in request.headers.items()})
        return web.Response(body=answer.SerializeToString(), content_type="application/x-protobuf")

    def take(self, request: Any, metadata: Mapping[str, Any]) -> Any:
        """Keeps what a request hands over."""
        self.metadata.append(metadata)
        self.raw.append(request.SerializeToString())
        if isinstance(request, logs_service_pb2.ExportLogsServiceRequest):
            self.events += _events_of(request)
            return logs_service_pb2.ExportLogsServiceResponse()
        if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
            self.metrics = {
                metric.name: metric
                for resource in request.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            }
            return metrics_service_pb2.ExportMetricsServiceResponse()
        self.spans += spans_of(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    def children(self, span: Span) -> list[Span]:
        """The spans right under a span."""
        return [found for found in self.spans if found.parent_id == span.span_id]

    def named(self, name: str) -> list[Span]:
        """The spans of a name."""
        return [found for found in self.spans if found.name == name]


@asynccontextmanager
async def collector(refusals: int = 0, *, logs: bool = True) -> AsyncIterator[Collector]:
    """Serves a collector over gRPC and HTTP, which takes nothing at first so many times.

    Without ``logs`` it has neither the service nor the path of events.
    """
    server, collecting = grpc.aio.server(), Collector(refusals=refusals)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(  # type: ignore[no-untyped-call] # no types
        collecting, server
    )
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(  # type: ignore[no-untyped-call] # no types
        collecting, server
    )
    if logs:
        logs_service_pb2_grpc.add_LogsServiceServicer_to_server(  # type: ignore[no-untyped-call] # no types
            collecting, server
        )
    collecting.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    signals = "traces|metrics|logs" if logs else "traces|metrics"
    try:
        async with serve_http(web.post(f"/v1/{{signal:{signals}}}", collecting.post)) as collecting.url:
            yield collecting
    finally:
        await server.stop(0)


def _events_of(request: logs_service_pb2.ExportLogsServiceRequest) -> list[Event]:
    return [
        Event(
            attributes(resource.resource.attributes).get("service.name", ""),
            record.event_name,
            record.trace_id.hex(),
            record.span_id.hex(),
            attributes(record.attributes),
        )
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def spans_of(request: trace_service_pb2.ExportTraceServiceRequest) -> list[Span]:
    """The spans that a request hands over."""
    return [
        _span(attributes(resource.resource.attributes).get("service.name", ""), span)
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Attributes as Python values."""
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None


def _span(service: str, span: trace_pb2.Span) -> Span:
    return Span(
        service,
        span.name,
        SpanKind(span.kind - 1),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.trace_state,
        attributes(span.attributes),
        span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        span.SerializeToString(),
    )


class Scrape:
    """Metrics as they were once."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples = [sample for family in self.families.values() for sample in family.samples]

    def sum(self, name: str, **labels: str) -> float:
        """The sum of all series of a name that have these labels."""
        return sum(sample.value for sample in self._samples if _has(sample, name, labels))

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """The sums by the values of one label."""
        found: dict[str, float] = {}
        for sample in self._samples:
            if _has(sample, name, labels):
                key = sample.labels[label]
                found[key] = found.get(key, 0) + sample.value
        return found


def _has(sample: Any, name: str, labels: Labels) -> bool:
    return bool(sample.name == name and labels.items() <= sample.labels.items())


async def scrape(port: int) -> Scrape:
    """Reads ``/metrics`` of a port of this machine."""

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            return str(response.read().decode())

    return Scrape(await asyncio.to_thread(read))


@contextmanager
def counted() -> Iterator[Counts]:
    """Counts into a new registry within a ``with`` block."""
    registry = CollectorRegistry()
    instruments.count_into(registry)
    try:
        yield Counts(registry)
    finally:
        instruments.count_into(None)


@dataclass(frozen=True)
class Counts:
    """What is counted in this process."""

    registry: CollectorRegistry

    def now(self) -> Scrape:
        """What was counted so far."""
        return Scrape(generate_latest(self.registry).decode())


@contextmanager
def traced(sample_ratio: float = 1, *, contents: bool = False) -> Iterator[list[Span]]:
    """Traces within a ``with`` block; the list holds the spans afterwards, as they would have been sent."""
    ended, spans = _Ended(), list[Span]()
    provider = TracerProvider(
        sampler=ParentBasedTraceIdRatio(sample_ratio), resource=Resource({SERVICE_NAME: "test"})
    )
    provider.add_span_processor(ended)
    with global_provider():
        trace.set_tracer_provider(provider)
        tracing.configure(provider, contents=contents)
        try:
            yield spans
        finally:
            if ended.spans:
                spans += spans_of(encode_spans(ended.spans))


class _Ended(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


@contextmanager
def global_provider() -> Iterator[None]:
    """Lets a test set the global tracer provider, which a process can set but once, and takes it back."""
    vars(trace).update(_TRACER_PROVIDER=None, _TRACER_PROVIDER_SET_ONCE=Once())
    try:
        yield
    finally:
        vars(trace).update(_TRACER_PROVIDER=None, _TRACER_PROVIDER_SET_ONCE=Once())
        tracing.configure(None)
