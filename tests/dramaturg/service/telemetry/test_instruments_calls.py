"""The spans of calls."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.trace import SpanKind

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.service.context import current
from dramaturg.testing import serve
from tests.support.grpc_servers import serve_synthesizer, silent, synthesize_request, synthesizer
from tests.support.telemetry import traced


async def test_the_metadata_of_a_call_is_sent_beside_that_of_its_trace() -> None:
    seen: list[dict[str, Any]] = []

    async def look(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        seen.append(dict(context.invocation_metadata()))
        return SynthesizeResponse()

    with traced() as spans:
        async with serve_synthesizer(look) as stub:
            await stub.Synthesize(synthesize_request(), metadata=(("x-stated", "planted"),))
    (made,) = [span for span in spans if span.kind is SpanKind.CLIENT]
    assert seen[0]["x-stated"] == "planted"
    assert seen[0]["traceparent"].startswith(f"00-{made.trace_id}-{made.span_id}-")


async def test_the_span_of_a_call_that_is_served_names_the_request_and_a_fault_of_the_server() -> None:
    names: list[str] = []

    async def fail(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        request_context = current()
        assert request_context is not None
        names.append(request_context.request_id)
        raise ZeroDivisionError

    with traced() as spans:
        async with serve_synthesizer(fail) as stub:
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.Synthesize(synthesize_request())
    (served,) = [span for span in spans if span.kind is SpanKind.SERVER]
    assert served.attributes["dramaturg.request.id"] == names[0]
    assert served.failed
    assert served.attributes["error.type"] == "INTERNAL"


async def test_a_call_that_cannot_even_be_begun_ends_its_span() -> None:
    async with serve(synthesizer(silent)) as server:
        channel = open_channel(server.target)
        stub = SynthesizeServiceStub(channel)
        await stub.Synthesize(synthesize_request())
        await channel.close()
        with traced() as spans, pytest.raises(grpc.aio.UsageError):
            await stub.Synthesize(synthesize_request())
    assert [(span.kind, span.attributes["error.type"]) for span in spans] == [(SpanKind.CLIENT, "UsageError")]


async def test_probes_have_no_spans() -> None:
    with traced() as spans:
        async with serve(synthesizer(silent)) as server, open_channel(server.target) as channel:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert not spans
