"""Metrics of calls, and their server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import invalid
from dramaturg.service.telemetry import instruments, telemetry, tracing
from dramaturg.service.telemetry.instruments import (
    MAX_TARGETS,
    OTHER,
    SECONDS,
    Bounded,
    Counter,
    Gauge,
    Histogram,
    Instrument,
    address_attributes,
    target_label,
)
from dramaturg.testing import serve, until
from services.generation.metrics import ATTEMPT_SECONDS, RETRIES
from tests.support.grpc_servers import (
    METHODS,
    arities,
    call_arity,
    serve_synthesizer,
    silent,
    synthesize_request,
    synthesizer,
)
from tests.support.ports import free_port
from tests.support.telemetry import (
    Counts,
    Scrape,
    attributes,
    collector,
    counted,
    global_provider,
    scrape,
    traced,
)

METHOD = "dramaturg.api.agents.v1.SynthesizeService/Synthesize"
SERVED = "grpc_server_call_duration_seconds_count"
MADE = "grpc_client_call_duration_seconds_count"


@pytest.fixture
def counts() -> Iterator[Counts]:
    with counted() as counting:
        yield counting


@pytest.fixture
def declaring(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test declares is forgotten."""
    monkeypatch.setattr(instruments, "_declared", {})


async def test_calls_are_counted_on_both_sides_by_how_they_ended(counts: Counts) -> None:
    async def work(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        if request.task.goal == "refuse":
            raise invalid("task.goal", "is refused")
        if request.task.goal == "break":
            raise RuntimeError
        return SynthesizeResponse()

    async with serve(synthesizer(work)) as server, open_channel(server.target) as channel:
        call = channel.unary_unary(
            f"/{METHOD}", SynthesizeRequest.SerializeToString, SynthesizeResponse.FromString
        )
        for goal in ("work", "work", "refuse", "break"):
            try:
                await call(synthesize_request(goal=goal))
            except grpc.aio.AioRpcError:
                assert goal != "work"
        target = server.target
    expected = {"OK": 2, "INVALID_ARGUMENT": 1, "INTERNAL": 1}
    assert counts.now().by(SERVED, "grpc_status", grpc_method=METHOD) == expected
    assert counts.now().by(MADE, "grpc_status", grpc_method=METHOD, grpc_target=target) == expected
    assert counts.now().sum("dramaturg_server_calls_in_flight") == 0


@pytest.mark.parametrize("method", [name for name, _, _ in METHODS])
async def test_calls_of_each_arity_are_counted(method: str, counts: Counts) -> None:
    async def work() -> None:
        assert counts.now().sum("dramaturg_server_calls_in_flight") == 1
        raise invalid("task", "is refused")

    async with serve(arities(work)) as server, open_channel(server.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await call_arity(channel, method, synthesize_request())
    for name in (SERVED, MADE):
        assert counts.now().by(name, "grpc_status") == {"INVALID_ARGUMENT": 1}
    assert counts.now().sum("dramaturg_server_calls_in_flight") == 0


async def test_calls_under_way_and_those_refused_are_counted(counts: Counts) -> None:
    entered, ready = asyncio.Event(), asyncio.Event()

    async def work(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        entered.set()
        await ready.wait()
        return SynthesizeResponse()

    async with serve_synthesizer(work, max_concurrent_calls=1) as stub:
        first = stub.Synthesize(synthesize_request())
        await entered.wait()
        assert counts.now().sum("dramaturg_server_calls_in_flight", grpc_method=METHOD) == 1
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Synthesize(synthesize_request())
        ready.set()
        await first
    assert counts.now().sum("dramaturg_server_calls_shed_total", grpc_method=METHOD) == 1
    assert counts.now().sum("dramaturg_server_calls_in_flight") == 0


async def test_callers_cannot_make_up_methods(counts: Counts) -> None:
    async with (
        serve(synthesizer(_approve)) as server,
        grpc.aio.insecure_channel(server.target) as channel,
    ):
        for number in range(5):
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(f"/made.up.Service{number}/Method", bytes, bytes)(b"")
    assert counts.now().by(SERVED, "grpc_method") == {OTHER: 5}


async def test_metrics_are_served_on_their_port_while_the_process_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    monkeypatch.setenv("DRAMATURG_METRICS_PORT", str(port))
    async with telemetry("test", "127.0.0.1"), serve_synthesizer(_approve) as stub:
        await stub.Synthesize(synthesize_request())
        found = await scrape(port)
    assert found.sum(SERVED, grpc_method=METHOD, grpc_status="OK") == 1
    assert found.sum("process_start_time_seconds") > 0
    with pytest.raises(urllib.error.URLError):
        await scrape(port)
    assert not instruments.counting()


async def test_without_a_port_nothing_is_served_or_counted() -> None:
    async with telemetry("test", "127.0.0.1"):
        assert not instruments.counting()


async def test_a_port_in_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("DRAMATURG_METRICS_PORT", str(port))
        with pytest.raises(OSError, match=f"metrics.port: cannot listen on 127.0.0.1:{port}"):
            async with telemetry("test", "127.0.0.1"):
                pass


def test_instruments_count_from_when_there_is_a_registry(declaring: None) -> None:
    early = Counter("early_total", "Declared before.", ("label",))
    early.add("a")
    with counted() as counts:
        found = _count(early, counts)
    early.add("a")
    assert found.by("early_total", "label") == {"a": 2}
    assert found.sum("late") == 5
    assert found.by("spread_seconds_bucket", "le") == {"1.0": 0, "2.0": 1, "+Inf": 1}
    assert counts.now().by("early_total", "label") == {"a": 2}


def _count(early: Counter, counts: Counts) -> Scrape:
    late = Gauge("late", "Declared after.")
    spread = Histogram("spread_seconds", "Spread.", bounds=(1, 2))
    early.add("a", amount=2)
    late.set(5)
    spread.observe(1.5)
    return counts.now()


def test_a_metric_is_declared_once(declaring: None) -> None:
    Counter("one_total", "One.")
    with pytest.raises(ValueError, match="one_total is declared twice"):
        Counter("one_total", "One.")


def test_labels_do_not_grow_without_bound() -> None:
    bounded = Bounded(2)
    assert [bounded(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]


def test_targets_do_not_grow_without_bound(counts: Counts) -> None:
    found = [target_label(METHOD, f"judge-{number}:50051") for number in range(MAX_TARGETS + 5)]
    assert found == [f"judge-{number}:50051" for number in range(MAX_TARGETS)] + [OTHER] * 5
    with counted():
        assert target_label(METHOD, "later:50051") == "later:50051"


@pytest.mark.parametrize(
    ("target", "host", "port"),
    [
        ("critic:50051", "critic", 50051),
        ("dns:///critic.eval.svc:50051", "critic.eval.svc", 50051),
        ("[::1]:50051", "::1", 50051),
        ("unix:/run/socket", "unix:/run/socket", None),
    ],
)
def test_addresses_have_a_port_of_their_own(target: str, host: str, port: int | None) -> None:
    expected = {"server.address": host} | ({} if port is None else {"server.port": port})
    assert address_attributes(target) == expected


async def test_polling_has_one_target(counts: Counts) -> None:
    async with serve(synthesizer(silent)) as server, open_channel(server.target) as channel:
        await IdentityServiceStub(channel).GetIdentity(GetIdentityRequest())
    assert counts.now().by(MADE, "grpc_target") == {OTHER: 1}


def test_names_keep_to_prometheus_conventions() -> None:
    """See https://prometheus.io/docs/practices/naming/."""
    for instrument in instruments.declared():
        assert (instrument.kind == "counter") == instrument.name.endswith("_total"), instrument.name
        # The conventions have no unit for tokens.
        unit = ("_seconds", "gen_ai_client_token_usage")
        assert instrument.kind != "histogram" or instrument.name.endswith(unit), instrument.name
        assert instrument.description.endswith("."), instrument.name
        assert isinstance(instrument, Instrument)


@pytest.mark.slow
def test_the_client_wheel_needs_neither_prometheus_client_nor_opentelemetrys_sdk() -> None:
    """A stand-in for an environment without the extra: to import one of them fails."""
    program = """
import sys
for name in ("prometheus_client", "opentelemetry.sdk", "opentelemetry.exporter"):
    sys.modules[name] = None
import asyncio, os
os.environ |= {"DRAMATURG_METRICS_PORT": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://nowhere:1"}
from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeResponse
from dramaturg.service.telemetry import telemetry
from tests.support.grpc_servers import synthesize_request, serve_synthesizer

async def approve(request, context):
    return SynthesizeResponse()

async def main():
    async with telemetry("test", "127.0.0.1"), serve_synthesizer(approve) as stub:
        await stub.Synthesize(synthesize_request())

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "prometheus-client is missing" in done.stderr
    assert "OpenTelemetry's SDK is missing" in done.stderr


async def _approve(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
    return SynthesizeResponse()


@pytest.mark.parametrize("http", [True, False])
async def test_metrics_are_sent_by_otlp_with_the_names_of_the_conventions(
    http: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collector() as collecting:
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", collecting.url if http else f"http://{collecting.target}"
        )
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf" if http else "grpc")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
        with global_provider():
            async with telemetry("a-service", "127.0.0.1"):
                with tracing.span("work", {}):
                    ids = tracing.ids()
                    ATTEMPT_SECONDS.observe(0.02, "p", "chat", "openai")
                    ATTEMPT_SECONDS.observe(700, "p", "chat", "openai")
                RETRIES.add("p", "transient", amount=3)
                await until(lambda: "gen_ai.client.operation.duration" in collecting.metrics)
    duration = collecting.metrics["gen_ai.client.operation.duration"]
    (point,) = duration.histogram.data_points
    assert (duration.unit, point.count, round(point.sum, 2)) == ("s", 2, 700.02)
    assert list(point.explicit_bounds) == list(SECONDS)
    assert (point.bucket_counts[2], point.bucket_counts[-1], sum(point.bucket_counts)) == (1, 1, 2)
    assert attributes(point.attributes) == {
        "provider": "p",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
    }
    assert ids is not None
    assert {(one.trace_id.hex(), one.span_id.hex()) for one in point.exemplars} == {tuple(ids)}
    (retries,) = collecting.metrics["dramaturg_provider_retries_total"].sum.data_points
    assert retries.as_double == 3
    assert collecting.metrics["dramaturg_provider_retries_total"].sum.is_monotonic


async def test_exemplars_are_served_to_those_who_ask_for_openmetrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAMATURG_METRICS_PORT", str(port := free_port()))
    monkeypatch.setattr(instruments, "_EXEMPLAR_SECONDS", 1e9)
    async with telemetry("a-service", "127.0.0.1"):
        found: list[tracing.Ids | None] = []
        # The second value has the bucket of the first, which keeps its exemplar.
        for value in (0.02, 0.021, 700.0):
            with traced(), tracing.span("work", {}):
                found.append(tracing.ids())
                ATTEMPT_SECONDS.observe(value, "p", "chat", "openai")
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/metrics",
            headers={"Accept": "application/openmetrics-text; version=1.0.0"},
        )

        def read() -> str:
            with urllib.request.urlopen(request, timeout=10) as response:
                return str(response.read().decode())

        text = await asyncio.to_thread(read)
    assert [one is not None and f'trace_id="{one.trace_id}"' in text for one in found] == [True, False, True]
