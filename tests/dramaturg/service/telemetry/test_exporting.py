"""Spans as a real collector gets them, and collectors that do not take them."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from pydantic import ValidationError

from dramaturg.service.settings import SettingsError
from dramaturg.service.telemetry import telemetry, tracing
from dramaturg.service.telemetry.backlog import BATCH
from dramaturg.service.telemetry.exporting import open_sender
from dramaturg.service.telemetry.settings import TracesSettings
from dramaturg.service.telemetry.spans import LONGEST_TEXT, Kind, Recorder
from tests.support.grpc_servers import until
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


@pytest.mark.parametrize(("variable", "named"), [("", "service"), ("another", "another")])
async def test_spans_are_sent_after_the_delay_under_the_name_of_the_service(
    variable: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collector() as collecting:
        monkeypatch.setenv("DRAMATURG_TRACES_ENDPOINT", f"http://{collecting.target}")
        monkeypatch.setenv("DRAMATURG_TRACES_DELAY_SECONDS", "0.05")
        monkeypatch.setenv("OTEL_SERVICE_NAME", variable)
        async with telemetry("service", "127.0.0.1"):
            with tracing.spanning("work"):
                pass
            await until(lambda: len(collecting.spans) == 1, seconds=4)  # sooner than by the default
    assert collecting.spans[0].service == named
    assert b"service.version" in collecting.raw[0]


@pytest.mark.parametrize("contents", [True, False])
async def test_of_the_traces_that_begin_as_many_are_kept_as_is_configured(
    contents: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collector() as collecting:
        monkeypatch.setenv("DRAMATURG_TRACES_ENDPOINT", f"http://{collecting.target}")
        monkeypatch.setenv("DRAMATURG_TRACES_SAMPLE_RATIO", "0")
        monkeypatch.setenv("DRAMATURG_TRACES_CONTENTS", str(contents))
        async with telemetry("service", "127.0.0.1"):
            assert tracing.contents() == contents
            with tracing.spanning("work"):
                pass
    assert not tracing.contents()
    assert not collecting.spans


async def test_there_are_no_traces_where_opentelemetry_is_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DRAMATURG_TRACES_ENDPOINT", "http://collector:4317")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with telemetry("service", "127.0.0.1"):
        assert not tracing.begin_call("method", {})[0].recording


async def test_a_collector_that_is_away_for_a_moment_gets_every_span() -> None:
    with counted() as counts:
        async with collector(refusals=1) as collecting:
            settings = TracesSettings(endpoint=f"http://{collecting.target}", flush_seconds=20)
            sender = open_sender("test", settings)
            Recorder(sender.take, 1).begin("work", Kind.INTERNAL, {}).end()
            await asyncio.to_thread(sender.shutdown)
        assert counts.now().sum("dramaturg_spans_sent_total") == 1
    assert len(collecting.spans) == 1


@pytest.mark.parametrize("character", ["x", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{PERFORMING ARTS}"])
async def test_spans_with_long_texts_are_no_more_than_a_collector_takes(character: str) -> None:
    with counted() as counts:
        async with collector() as collecting:
            settings = TracesSettings(endpoint=f"http://{collecting.target}", flush_seconds=20)
            sender = open_sender("test", settings)
            recorder = Recorder(sender.take, 1)
            for length in [5000] * BATCH + [LONGEST_TEXT + 1]:
                span = recorder.begin("chat", Kind.CLIENT, {})
                for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
                    span.set(name, character * length)
                span.end()
            await asyncio.to_thread(sender.shutdown)
        assert counts.now().sum("dramaturg_spans_sent_total") == BATCH + 1
    assert len(collecting.spans[-1].attributes["gen_ai.input.messages"]) == LONGEST_TEXT


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
        assert time.monotonic() - begun < TracesSettings().flush_seconds
        assert counts.now().by("dramaturg_spans_dropped_total", "reason") == {"queue": 0, "collector": 2000}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DRAMATURG_TRACES_ENDPOINT", "http://[::1"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
    ],
)
async def test_what_opentelemetry_cannot_use_are_settings_that_cannot_be_used(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAMATURG_TRACES_ENDPOINT", "http://collector:4317")
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=r"traces\.endpoint or OTEL_EXPORTER_OTLP_\*"):
        async with telemetry("service", "127.0.0.1"):
            pass
    assert not tracing.begin_call("method", {})[0].recording


def test_a_whole_batch_finds_room() -> None:
    with pytest.raises(ValidationError, match="queue_size"):
        TracesSettings(queue_size=BATCH - 1)
    assert TracesSettings(queue_size=BATCH).queue_size == BATCH


def test_opentelemetrys_own_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not TracesSettings().enabled
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "")
    assert TracesSettings().endpoint == "http://collector:4317"
    assert TracesSettings().delay_seconds == 5
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "250")
    assert TracesSettings().endpoint == "http://traces:4317"
    assert TracesSettings().delay_seconds == 0.25
    assert TracesSettings().enabled
    monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
    assert not TracesSettings().enabled
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", " 1500.0")
    assert TracesSettings().delay_seconds == 1.5
    for refused in ("soon", "0", "-1", "nan"):
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", refused)
        with pytest.raises(ValidationError, match="delay_seconds"):
            TracesSettings()
