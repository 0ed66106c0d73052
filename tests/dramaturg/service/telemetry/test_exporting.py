"""Spans as a real collector gets them, and collectors that do not take them."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from pydantic import ValidationError

from dramaturg.service.telemetry import telemetry, tracing
from dramaturg.service.telemetry.exporting import open_sender
from dramaturg.service.telemetry.settings import TracesSettings
from dramaturg.service.telemetry.spans import Kind, Recorder
from tests.support.ports import free_port
from tests.support.telemetry import collector, counted


async def test_spans_reach_the_collector_with_what_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as collecting:
        monkeypatch.setenv("DRAMATURG_TRACES_ENDPOINT", f"http://{collecting.target}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=planted")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        with counted() as counts:
            async with telemetry("service", "127.0.0.1"):
                with tracing.spanning("work", {"attribute": 1}):
                    pass
            assert counts.now().sum("dramaturg_spans_sent_total") == 1
    (span,) = collecting.spans
    assert (span.service, span.name, span.attributes) == ("service", "work", {"attribute": 1})
    assert b"deployment.environment.name" in collecting.raw[0]
    assert collecting.metadata[0]["x-key"] == "planted"


async def test_a_collector_that_is_away_for_a_moment_gets_every_span() -> None:
    with counted() as counts:
        async with collector(refusals=1) as collecting:
            settings = TracesSettings(endpoint=f"http://{collecting.target}", flush_seconds=20)
            sender = open_sender("test", settings)
            Recorder(sender.take, 1).begin("work", Kind.INTERNAL, {}).end()
            await asyncio.to_thread(sender.shutdown)
        assert counts.now().sum("dramaturg_spans_sent_total") == 1
    assert len(collecting.spans) == 1


@pytest.fixture(params=["says nothing", "refuses"])
def dead_collector(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a collector that accepts connections and says nothing, or that refuses them."""
    if request.param == "refuses":
        yield f"http://127.0.0.1:{free_port()}"
        return
    with closing(socket.create_server(("127.0.0.1", 0), backlog=100)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_the_end_does_not_wait_for_a_dead_collector(dead_collector: str) -> None:
    with counted() as counts:
        sender = open_sender("test", TracesSettings(endpoint=dead_collector, flush_seconds=0.3))
        recorder = Recorder(sender.take, 1)
        for _ in range(2000):  # four batches, each of which may take 10 seconds
            recorder.begin("work", Kind.INTERNAL, {}).end()
        begun = time.monotonic()
        sender.shutdown()
        assert time.monotonic() - begun < 4
        assert counts.now().by("dramaturg_spans_dropped_total", "reason") == {"queue": 0, "collector": 2000}


def test_opentelemetrys_own_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "250")
    assert TracesSettings().endpoint == "http://collector:4317"
    assert TracesSettings().delay_seconds == 0.25
    assert TracesSettings().enabled
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not TracesSettings().enabled
    for refused in ("soon", "0", "-1"):
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", refused)
        with pytest.raises(ValidationError, match="delay_seconds"):
            TracesSettings()
