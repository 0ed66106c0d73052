"""A collector of spans, and a reader of metrics."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dramaturg.service.telemetry import instruments, tracing
from dramaturg.service.telemetry.exporting import open_provider
from dramaturg.service.telemetry.settings import TracesSettings

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Span:
    """A span as it was sent."""

    service: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    """Empty: it begins a trace."""
    attributes: Mapping[str, Any]
    failed: bool


@dataclass
class Collector:
    """What a collector took.

    Attributes:
        target: Where it is reached.
        spans: Every span, in the order in which they came.
        raw: What came, as bytes.
    """

    target: str = ""
    spans: list[Span] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)

    async def Export(self, request: Any, context: Any) -> Any:
        """Takes spans."""
        self.raw.append(request.SerializeToString())
        for resource in request.resource_spans:
            service = attributes(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                self.spans += [_span(service, span) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def children(self, span: Span) -> list[Span]:
        """The spans right under a span."""
        return [found for found in self.spans if found.parent_id == span.span_id]

    def named(self, name: str) -> list[Span]:
        """The spans of a name."""
        return [found for found in self.spans if found.name == name]


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """Serves a collector on a free port."""
    server, collecting = grpc.aio.server(), Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(  # type: ignore[no-untyped-call] # no types
        collecting, server
    )
    collecting.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield collecting
    finally:
        await server.stop(0)


def attributes(pairs: Sequence[KeyValue]) -> dict[str, Any]:
    """Attributes as Python values."""
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None


def _span(service: str, span: Any) -> Span:
    return Span(
        service,
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        attributes(span.attributes),
        span.status.code == 2,
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
def traced(**settings: Any) -> Iterator[list[ReadableSpan]]:
    """Traces within a ``with`` block; the list holds the spans afterwards."""
    spans: list[ReadableSpan] = []
    exporter = InMemorySpanExporter()
    chosen = TracesSettings(endpoint="http://nowhere", **settings)
    provider = open_provider("test", chosen, exporter)
    tracing.trace_with(provider.get_tracer("test"), contents=chosen.contents)
    try:
        yield spans
    finally:
        tracing.trace_with(None)
        provider.shutdown()
        spans += exporter.get_finished_spans()
