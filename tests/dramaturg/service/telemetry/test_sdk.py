"""Spans as a collector gets them over OTLP, and collectors that do not take them."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)
from pydantic import ValidationError

from dramaturg.service.settings import SettingsError
from dramaturg.service.telemetry import telemetry, tracing
from dramaturg.service.telemetry.sdk import Requests, Tracing, resource_of
from dramaturg.service.telemetry.settings import MAX_TEXT_LENGTH, TracesSettings
from dramaturg.testing import until
from tests.support.ports import free_port
from tests.support.telemetry import collector, counted, global_provider

ATTRIBUTES: dict[str, Any] = {
    "text": "grün",
    "long": "x" * 5000,
    "true": True,
    "one": 1,
    "share": 1.0,
    "texts": ["a", "b"],
    "none": (),
}
"""A value of every kind that events and spans have."""


@pytest.fixture(autouse=True)
def _no_provider() -> Iterator[None]:
    with global_provider():
        yield
    tracing.configure_events(None)


def is_recording() -> bool:
    """Whether a span of a call that is made now is recorded."""
    span, _ = tracing.start_client_span("method", {})
    recording = span.is_recording()
    span.end()
    return recording


async def test_spans_reach_the_collector_with_the_configured_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as collecting:
        monkeypatch.setenv("DRAMATURG_TRACES_ENDPOINT", f"http://{collecting.target}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=planted")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        with counted() as counts:
            async with telemetry("service", "127.0.0.1"):
                with tracing.span("work", {"attribute": 1}):
                    pass
            assert counts.now().sum("dramaturg_spans_sent_total") == 1
    (span,) = collecting.spans
    assert (span.service, span.name, span.attributes) == ("service", "work", {"attribute": 1})
    assert b"deployment.environment.name" in collecting.raw[0]
    assert collecting.metadata[0]["x-key"] == "planted"


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("http", [True, False])
async def test_both_protocols_take_spans_and_events(
    own: bool, http: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collector(refusals=1) as collecting:
        address = collecting.url if http else f"http://{collecting.target}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        if own:
            monkeypatch.setenv("DRAMATURG_TRACES_ENDPOINT", address)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=planted")
        if http:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        with counted() as counts:
            async with telemetry("service", "127.0.0.1"):
                assert not tracing.emitting()
                with tracing.span("work"):
                    assert tracing.emitting()
                    tracing.emit("happened", [({"kind": "one"}, {"attribute": 1})])
            assert counts.now().sum("dramaturg_spans_sent_total") == 1
            assert counts.now().sum("dramaturg_events_sent_total") == 1
    assert not tracing.emitting()
    (span,), (event,) = collecting.spans, collecting.events
    assert (event.service, event.name, event.attributes) == (
        "service",
        "happened",
        {"kind": "one", "attribute": 1},
    )
    assert (event.trace_id, event.span_id) == (span.trace_id, span.span_id)
    assert [metadata["x-key"] for metadata in collecting.metadata] == ["planted"] * 2


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "{}"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "{}", "OTEL_LOGS_EXPORTER": "none"},
        {"DRAMATURG_TRACES_ENDPOINT": "{}"},
    ],
)
async def test_a_collector_of_spans_alone_gets_no_events(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collector() as collecting:
        for name, value in variables.items():
            monkeypatch.setenv(name, value.format(f"http://{collecting.target}"))
        async with telemetry("service", "127.0.0.1"):
            with tracing.span("work"):
                assert not tracing.emitting()
    assert len(collecting.spans) == 1
    assert not collecting.events


@pytest.mark.parametrize("http", [True, False])
async def test_a_collector_that_has_no_place_for_events_is_sent_no_more(
    http: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with collector(logs=False) as collecting:
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", collecting.url if http else f"http://{collecting.target}"
        )
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf" if http else "grpc")
        monkeypatch.setenv("OTEL_BLRP_SCHEDULE_DELAY", "10")
        with counted() as counts:
            async with telemetry("service", "127.0.0.1"):
                with tracing.span("work"):
                    assert tracing.emitting()
                    tracing.emit("happened", [({}, {})])
                    await until(lambda: not tracing.emitting(), seconds=10)
                    tracing.emit("happened", [({}, {})])  # one that was on its way
            now = counts.now()
    assert now.by("dramaturg_events_dropped_total", "reason") == {"collector": 2, "queue": 0}
    assert now.sum("dramaturg_events_sent_total") == 0
    assert len(collecting.spans) == 1
    assert sum("the collector takes no events" in record.message for record in caplog.records) == 1


async def test_every_kind_of_attribute_arrives_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as collecting:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{collecting.target}")
        async with telemetry("service", "127.0.0.1"):
            with tracing.span("work"):
                shared: dict[str, str | tuple[str, ...]] = {"kind": "long", "judges": ("a", "b")}
                own = {name: ATTRIBUTES[name] for name in ("one", "true", "share")}
                tracing.emit("happened", [(shared, ATTRIBUTES), ({}, own)])
    first, second = (event.attributes for event in collecting.events)
    assert first == {"kind": "long", "judges": ["a", "b"], **ATTRIBUTES, "none": []}
    assert [(name, type(value)) for name, value in second.items()] == [
        ("one", int),
        ("true", bool),
        ("share", float),
    ]


async def test_events_have_an_endpoint_and_a_protocol_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as spans, collector() as logs:
        monkeypatch.setenv("DRAMATURG_TRACES_ENDPOINT", f"http://{spans.target}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", f"{logs.url}/v1/logs")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/protobuf")
        async with telemetry("service", "127.0.0.1"):
            with tracing.span("work"):
                tracing.emit("happened", [({}, {})])
    assert (len(spans.spans), len(spans.events)) == (1, 0)
    assert (len(logs.spans), len(logs.events)) == (0, 1)


async def test_spans_of_the_api_are_sent_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as collecting:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{collecting.target}")
        async with telemetry("service", "127.0.0.1"):
            with trace.get_tracer("a team's own").start_as_current_span("theirs"), tracing.span("ours"):
                pass
    by_name = {span.name: span for span in collecting.spans}
    assert by_name["ours"].parent_id == by_name["theirs"].span_id


def test_spans_are_encoded_as_the_exporters_of_opentelemetry_encode_them() -> None:
    provider = TracerProvider(resource=resource_of("service"))
    state = TraceState([("a", "1"), ("b", "2")])
    remote = SpanContext(2**127 + 1, 7, is_remote=True, trace_flags=TraceFlags(1), trace_state=state)
    parents = [None, Context(), trace.set_span_in_context(NonRecordingSpan(remote), Context())]
    attributes = {**ATTRIBUTES, "bytes": b"\xff", "mapping": {"a": [1, {"b": 0.5}]}}
    statuses = [None, Status(StatusCode.OK), Status(StatusCode.ERROR), Status(StatusCode.ERROR, "failed")]
    tracer = provider.get_tracer(tracing.SCOPE)
    own: list[Any] = []
    for kind, parent, status in itertools.product(SpanKind, parents, statuses):
        own.append(tracer.start_span("own", parent, kind, attributes))
        if status is not None:
            own[-1].set_status(status)
    link = tracer.start_span("link", links=[Link(remote, {"kind": "link"})])
    event = tracer.start_span("event")
    event.add_event("happened", {"one": 1})
    theirs = [provider.get_tracer(name, "1.0").start_span(name) for name in ("a team's own", tracing.SCOPE)]
    others: list[Any] = [link, event, *theirs]
    for span in (*own, *others):
        span.end()
    requests = Requests(provider.resource.attributes, provider.resource.schema_url, tracing.SCOPE)

    assert ExportTraceServiceRequest.FromString(requests.of_spans(own)) == encode_spans(own)
    assert requests.of_spans(others) == encode_spans(others).SerializeToString()
    assert requests.of_spans(own + others) == requests.of_spans(own) + requests.of_spans(others)


@pytest.mark.parametrize(("variable", "name"), [("", "service"), ("another", "another")])
async def test_the_batch_delay_and_the_name_of_the_service_are_those_of_the_specifications_variables(
    variable: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collector() as collecting:
        monkeypatch.setenv("DRAMATURG_TRACES_ENDPOINT", f"http://{collecting.target}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_SERVICE_NAME", variable)
        async with telemetry("service", "127.0.0.1"):
            with tracing.span("work"):
                pass
            await until(lambda: len(collecting.spans) == 1, seconds=4)  # sooner than by the default
    assert collecting.spans[0].service == name
    assert b"service.version" in collecting.raw[0]


@pytest.mark.parametrize("contents", [True, False])
@pytest.mark.parametrize(
    "variables",
    [
        {"DRAMATURG_TRACES_SAMPLE_RATIO": "0"},
        {"OTEL_TRACES_SAMPLER": "always_off"},
        {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"},
        {"OTEL_TRACES_SAMPLER": "always_on", "DRAMATURG_TRACES_SAMPLE_RATIO": "0"},
    ],
)
async def test_the_sampler_is_that_of_the_settings_or_of_the_specifications_variables(
    contents: bool, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collector() as collecting:
        monkeypatch.setenv("DRAMATURG_TRACES_ENDPOINT", f"http://{collecting.target}")
        monkeypatch.setenv("DRAMATURG_TRACES_CONTENTS", str(contents))
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        async with telemetry("service", "127.0.0.1"):
            assert tracing.contents() == contents
            with tracing.span("work"):
                pass
    assert not tracing.contents()
    assert not collecting.spans


async def test_there_are_no_traces_where_opentelemetry_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAMATURG_TRACES_ENDPOINT", "http://collector:4317")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with telemetry("service", "127.0.0.1"):
        assert not is_recording()


async def test_a_collector_that_is_away_for_a_moment_gets_every_span() -> None:
    with counted() as counts:
        async with collector(refusals=1) as collecting:
            sending = Tracing(
                "test", TracesSettings(endpoint=f"http://{collecting.target}", flush_seconds=20)
            )
            sending.provider.get_tracer("test").start_span("work").end()
            await asyncio.to_thread(sending.shutdown)
        assert counts.now().sum("dramaturg_spans_sent_total") == 1
    assert len(collecting.spans) == 1


@pytest.mark.parametrize("character", ["x", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{PERFORMING ARTS}"])
async def test_batches_of_spans_with_prompts_are_no_larger_than_a_collector_takes(character: str) -> None:
    spans = 20
    with counted() as counts:
        async with collector() as collecting:
            endpoint = f"http://{collecting.target}"
            sending = Tracing("test", TracesSettings(endpoint=endpoint, flush_seconds=20, contents=True))
            tracer = sending.provider.get_tracer("test")
            for _ in range(spans):
                span = tracer.start_span("chat", kind=SpanKind.CLIENT)
                for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
                    span.set_attribute(name, character * (MAX_TEXT_LENGTH + 1))
                span.end()
            await asyncio.to_thread(sending.shutdown)
        assert counts.now().sum("dramaturg_spans_sent_total") == spans
    assert max(map(len, collecting.raw)) < 4 << 20
    assert len(collecting.spans[-1].attributes["gen_ai.input.messages"]) == MAX_TEXT_LENGTH


@pytest.fixture(params=["says nothing", "refuses"])
def dead_collector(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a collector that accepts connections and says nothing, or that refuses them."""
    if request.param == "refuses":
        yield f"http://127.0.0.1:{free_port()}"
        return
    with closing(socket.create_server(("127.0.0.1", 0), backlog=100)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_the_end_does_not_wait_for_a_dead_collector_and_all_that_is_lost_is_counted(
    protocol: str, dead_collector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", dead_collector)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_BLRP_MAX_QUEUE_SIZE", "1000")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1000")
    with counted() as counts:
        sending = Tracing("test", TracesSettings(flush_seconds=0.3))
        tracer = sending.provider.get_tracer("test")
        tracing.configure_events(sending.events)
        for _ in range(3000):
            tracer.start_span("work").end()
            tracing.emit("happened", [({}, {})])
        begun = time.monotonic()
        sending.shutdown()
        assert time.monotonic() - begun < TracesSettings().flush_seconds
        for signal in ("spans", "events"):
            dropped = counts.now().by(f"dramaturg_{signal}_dropped_total", "reason")
            assert dropped["queue"] > 0
            assert sum(dropped.values()) == 3000


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DRAMATURG_TRACES_ENDPOINT", "http://[::1"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/json"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0"),
    ],
)
async def test_values_that_opentelemetry_cannot_use_are_bad_settings(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=r"traces\.endpoint or OTEL_\*"):
        async with telemetry("service", "127.0.0.1"):
            pass
    assert not is_recording()


async def test_a_bad_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAMATURG_TRACES_ENDPOINT", "http://collector:4317")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many")
    with pytest.raises(SettingsError, match="OTEL_BSP_MAX_QUEUE_SIZE is no whole number"):
        async with telemetry("service", "127.0.0.1"):
            pass


def test_the_endpoint_is_that_of_the_specifications_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not TracesSettings().enabled
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    assert TracesSettings().endpoint == "http://collector:4317"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317")
    assert TracesSettings().endpoint == "http://traces:4317"
    assert TracesSettings().enabled
    monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
    assert not TracesSettings().enabled
    with pytest.raises(ValidationError, match="sample_ratio"):
        TracesSettings(sample_ratio=1.5)
