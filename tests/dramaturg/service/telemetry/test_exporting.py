"""Spans that cannot be sent are counted, and hold nobody up."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from dramaturg.service.telemetry.exporting import BoundedProcessor, open_provider
from dramaturg.service.telemetry.settings import TracesSettings
from tests.support.ports import free_port
from tests.support.telemetry import Counts, counted


@pytest.fixture
def counts() -> Iterator[Counts]:
    with counted() as counting:
        yield counting


class Gate(SpanExporter):
    """A collector that takes nothing until it is opened, and then answers as told."""

    def __init__(self, result: SpanExportResult) -> None:
        self.opened = threading.Event()
        self.taken = 0
        self._result = result

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.opened.wait(20)
        self.taken += len(spans)
        return self._result


def make(processor: BoundedProcessor, count: int) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    make_of(provider, count)


def make_of(provider: TracerProvider, count: int) -> None:
    tracer = provider.get_tracer("test")
    for _ in range(count):
        tracer.start_span("work").end()


def test_a_collector_that_hangs_costs_spans_and_no_time(counts: Counts) -> None:
    gate = Gate(SpanExportResult.SUCCESS)
    processor = BoundedProcessor(gate, 600, flush_seconds=20)
    make(processor, 1000)  # returns, although nothing is taken
    gate.opened.set()
    processor.shutdown()
    found = counts.now()
    assert gate.taken == 600
    assert found.by("dramaturg_spans_dropped_total", "reason") == {"queue": 400, "collector": 0}
    assert found.sum("dramaturg_spans_sent_total") == 600


def test_what_the_collector_does_not_take_is_counted(counts: Counts) -> None:
    gate = Gate(SpanExportResult.FAILURE)
    gate.opened.set()
    processor = BoundedProcessor(gate, 600, flush_seconds=20)
    make(processor, 10)
    processor.shutdown()
    found = counts.now()
    assert found.by("dramaturg_spans_dropped_total", "reason") == {"queue": 0, "collector": 10}
    assert found.sum("dramaturg_spans_sent_total") == 0


@pytest.fixture(params=["says nothing", "refuses"])
def dead_collector(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a collector that accepts connections and says nothing, or that refuses them."""
    if request.param == "refuses":
        yield f"http://127.0.0.1:{free_port()}"
        return
    with closing(socket.create_server(("127.0.0.1", 0), backlog=100)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_the_end_does_not_wait_for_a_dead_collector(counts: Counts, dead_collector: str) -> None:
    provider = open_provider("test", TracesSettings(endpoint=dead_collector, flush_seconds=0.3))
    make_of(provider, 2000)  # four batches, each of which the SDK alone would give 10 seconds
    begun = time.monotonic()
    provider.shutdown()
    assert time.monotonic() - begun < 4
    assert counts.now().by("dramaturg_spans_dropped_total", "reason") == {"queue": 0, "collector": 2000}
