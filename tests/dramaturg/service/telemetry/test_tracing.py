"""Spans, and how they travel."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags
from opentelemetry.trace import SpanKind, TraceFlags

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import invalid
from dramaturg.service.logs import JsonFormatter
from dramaturg.service.telemetry import tracing
from dramaturg.service.telemetry.tracing import Ids
from dramaturg.testing import serve
from tests.support.grpc_servers import (
    METHODS,
    Synthesize,
    arities,
    call_arity,
    relay,
    serve_synthesizer,
    silent,
    synthesize_request,
    synthesizer,
)
from tests.support.telemetry import Span, traced

METHOD = "dramaturg.api.agents.v1.SynthesizeService/Synthesize"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = ("traceparent", f"00-{TRACE}-{PARENT}-01")
UNSAMPLED = ("traceparent", f"00-{TRACE}-{PARENT}-00")


@asynccontextmanager
async def two_hops(work: Synthesize = silent) -> AsyncIterator[Any]:
    """A synthesizer that asks another one; yields a call by an untraced channel."""
    async with (
        serve(synthesizer(work)) as inner,
        serve(synthesizer(relay(inner.target))) as outer,
        grpc.aio.insecure_channel(outer.target) as channel,
    ):
        yield bare(channel)


def flags(span: Span) -> int:
    """Those of a span and of the one around it."""
    return SpanMessage.FromString(span.raw).flags


def bare(channel: grpc.aio.Channel) -> Any:
    return channel.unary_unary(
        f"/{METHOD}", SynthesizeRequest.SerializeToString, SynthesizeResponse.FromString
    )


@asynccontextmanager
async def behind_a_hop() -> AsyncIterator[tuple[Any, Sequence[Mapping[str, Any]]]]:
    """Such a call, and what metadata comes out behind the first synthesizer."""
    seen: list[Mapping[str, Any]] = []

    async def look(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        seen.append(dict(context.invocation_metadata()))
        return SynthesizeResponse()

    async with two_hops(look) as call:
        yield call, seen


async def test_every_hop_is_under_the_one_before_it() -> None:
    with traced() as spans:
        async with two_hops() as call:
            await call(synthesize_request(), metadata=(SAMPLED, ("tracestate", "vendor=1")))
    assert {span.name for span in spans} == {METHOD}
    by_parent = {span.parent_id: span for span in spans}
    outer = by_parent[PARENT]
    between = by_parent[outer.span_id]
    inner = by_parent[between.span_id]
    assert [span.kind for span in (outer, between, inner)] == [
        SpanKind.SERVER,
        SpanKind.CLIENT,
        SpanKind.SERVER,
    ]
    assert len(spans) == 3
    assert {(span.trace_id, span.state) for span in spans} == {(TRACE, "vendor=1")}
    remote = [
        bool(flags(span) & SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK) for span in (outer, between, inner)
    ]
    assert remote == [True, False, True]


async def test_calls_of_no_trace_have_no_spans_in_any_service() -> None:
    with traced() as spans:
        async with (
            serve(synthesizer(silent)) as inner,
            serve(synthesizer(relay(inner.target))) as outer,
            open_channel(outer.target) as channel,
        ):
            with tracing.untraced():
                await SynthesizeServiceStub(channel).Synthesize(synthesize_request())
            assert not spans
            await SynthesizeServiceStub(channel).Synthesize(synthesize_request())
    assert len(spans) == 4


async def test_a_service_that_does_not_trace_leaves_no_gap() -> None:
    async with behind_a_hop() as (call, seen):
        await call(synthesize_request(), metadata=(SAMPLED, ("tracestate", "vendor=1")))
        await call(synthesize_request())
    assert seen[0]["traceparent"] == SAMPLED[1]
    assert seen[0]["tracestate"] == "vendor=1"
    assert "traceparent" not in seen[1]


@pytest.mark.parametrize("sent", [UNSAMPLED, None])
async def test_a_trace_that_is_not_kept_is_passed_on_as_one(sent: tuple[str, str] | None) -> None:
    with traced(sample_ratio=0) as spans:
        async with behind_a_hop() as (call, seen):
            await call(synthesize_request(), metadata=(sent,) if sent else ())
    # Those behind it do not begin a trace of their own.
    _, trace_id, _, bits = seen[0]["traceparent"].split("-")
    assert not int(bits, 16) & TraceFlags.SAMPLED
    assert sent is None or trace_id == TRACE
    assert not spans


@pytest.mark.parametrize("method", [name for name, _, _ in METHODS])
async def test_each_arity_has_one_span_on_each_side(method: str) -> None:
    async def work() -> None:
        raise invalid("task", "is planted text")

    with traced() as spans:
        async with serve(arities(work)) as server, open_channel(server.target) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await call_arity(channel, method, synthesize_request())
    assert len(spans) == 2
    for span in spans:
        assert span.attributes["rpc.response.status_code"] == "INVALID_ARGUMENT"
        assert (span.attributes["rpc.system.name"], span.attributes["rpc.method"]) == ("grpc", span.name)
        assert b"planted" not in span.raw
    (made,) = [span for span in spans if span.kind is SpanKind.CLIENT]
    host, _, port = server.target.rpartition(":")
    assert (made.attributes["server.address"], made.attributes["server.port"]) == (host, int(port))
    # It is the caller's fault, and no error of the server.
    assert {span.kind: span.failed for span in spans} == {SpanKind.CLIENT: True, SpanKind.SERVER: False}


async def test_a_call_that_is_cancelled_ends_its_spans() -> None:
    entered = asyncio.Event()

    async def hang(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        entered.set()
        await asyncio.Event().wait()
        return SynthesizeResponse()

    with traced() as spans:
        async with serve_synthesizer(hang, drain_grace_seconds=0.1) as stub:
            call = stub.Synthesize(synthesize_request())
            await entered.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
    codes = {span.kind: span.attributes["rpc.response.status_code"] for span in spans}
    assert codes == {SpanKind.CLIENT: "CANCELLED", SpanKind.SERVER: "CANCELLED"}


async def test_callers_decide_what_is_sampled_and_the_ratio_where_a_trace_begins() -> None:
    async with serve(synthesizer(silent)) as server, grpc.aio.insecure_channel(server.target) as channel:
        call = bare(channel)
        with traced(sample_ratio=0) as none:
            await call(synthesize_request())
        with traced(sample_ratio=0) as one:
            await call(synthesize_request(), metadata=(SAMPLED,))
        with traced(sample_ratio=1) as unsampled:
            await call(synthesize_request(), metadata=(UNSAMPLED,))
    assert (len(none), len(one), len(unsampled)) == (0, 1, 0)


def test_a_span_is_under_the_one_around_it_unless_it_begins_a_trace() -> None:
    with traced() as spans, tracing.span("outer"):
        with tracing.span("inner", kind=SpanKind.CLIENT):
            pass
        with tracing.span("root", root=True):
            pass
    inner, root, outer = spans
    assert (inner.parent_id, inner.trace_id) == (outer.span_id, outer.trace_id)
    assert [span.kind for span in spans] == [SpanKind.CLIENT, SpanKind.INTERNAL, SpanKind.INTERNAL]
    assert not root.parent_id
    assert root.trace_id != outer.trace_id
    assert 0 < outer.began <= inner.began <= inner.ended <= outer.ended
    assert outer.began < outer.ended


def test_spans_may_hold_contents_while_it_is_said_so() -> None:
    said = [tracing.contents()]
    with traced(contents=True):
        said.append(tracing.contents())
    with traced():
        said.append(tracing.contents())
    assert said == [False, True, False]


def test_the_first_reason_of_a_failure_counts() -> None:
    with traced() as spans, tracing.span("work") as span:
        tracing.fail(span, "first")
        tracing.fail(span, "second")
    assert [one.attributes for one in spans] == [{"error.type": "first"}]


def test_spans_of_opentelemetrys_api_are_in_the_trace() -> None:
    tracer = trace.get_tracer("a team's own")
    with (
        traced() as spans,
        tracing.span("outer"),
        tracer.start_as_current_span("theirs"),
        tracing.span("inner"),
    ):
        pass
    by_name = {span.name: span for span in spans}
    assert by_name["theirs"].parent_id == by_name["outer"].span_id
    assert by_name["inner"].parent_id == by_name["theirs"].span_id


async def test_a_span_that_a_servicer_makes_with_the_api_joins_the_trace_of_the_call() -> None:
    async with serve(synthesizer(silent)) as inner, open_channel(inner.target) as channel:

        async def work(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
            with trace.get_tracer("a team's own").start_as_current_span("theirs"):
                return await SynthesizeServiceStub(channel).Synthesize(request)

        with traced() as spans:
            async with serve_synthesizer(work) as stub:
                await stub.Synthesize(synthesize_request())
    (own,) = [span for span in spans if span.name == "theirs"]
    by_id = {span.span_id: span for span in spans}
    assert by_id[own.parent_id].kind is SpanKind.SERVER
    (called,) = [span for span in spans if span.parent_id == own.span_id]
    assert called.kind is SpanKind.CLIENT
    assert len({span.trace_id for span in spans}) == 1


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80))
def test_a_call_is_served_whatever_its_trace_headers_hold(header: str) -> None:
    def enter() -> Ids | None:
        metadata = [("traceparent", header), ("tracestate", header)]
        span, token = tracing.start_server_span(metadata, "name", {})
        found = tracing.ids()
        tracing.end_server_span(span, token)
        return found

    with traced():
        assert contextvars.copy_context().run(enter) is not None
    contextvars.copy_context().run(enter)


@pytest.mark.parametrize("value", [b"bytes", 5, None])
def test_headers_that_are_no_text_are_ignored(value: object) -> None:
    span, token = tracing.start_server_span([("traceparent", value)], "name", {})
    assert token is None
    tracing.end_server_span(span, token)
    span, token = tracing.start_server_span([SAMPLED, ("tracestate", value)], "name", {})
    assert tracing.ids() == (TRACE, PARENT)
    tracing.end_server_span(span, token)
    assert tracing.ids() is None


def test_of_several_trace_headers_the_last_counts() -> None:
    stated = ("traceparent", f"00-{TRACE[::-1]}-{PARENT}-01")
    span, token = tracing.start_server_span([stated, SAMPLED], "name", {})
    assert tracing.ids() == (TRACE, PARENT)
    tracing.end_server_span(span, token)


@pytest.mark.parametrize(
    ("states", "sent"),
    [
        (["a=1", "b=2"], "a=1,b=2"),
        (["a=1\r\nx: y"], None),
        (["a=" + "x" * 250, "b=" + "x" * 250], "a=" + "x" * 250 + ",b=" + "x" * 250),
        (["a=" + "x" * 250, "b=" + "x" * 250, "c=" + "x" * 250], None),
    ],
)
def test_the_state_of_a_trace_is_passed_on_where_it_can_be_sent(states: list[str], sent: str | None) -> None:
    metadata = [SAMPLED, *[("tracestate", state) for state in states]]
    span, token = tracing.start_server_span(metadata, "name", {})
    made, headers = tracing.start_client_span("name", {})
    assert dict(headers).get("tracestate") == sent
    assert dict(headers)["traceparent"] == SAMPLED[1]
    made.end()
    tracing.end_server_span(span, token)


async def test_a_failed_span_has_the_type_of_its_error_and_not_the_message() -> None:
    with traced() as spans, pytest.raises(ValueError, match="planted"), tracing.span("work"):
        raise ValueError("planted")
    (span,) = spans
    assert span.failed
    assert span.attributes["error.type"] == "ValueError"
    assert b"planted" not in span.raw


async def test_logs_name_the_trace_where_there_is_one() -> None:
    lines: list[dict[str, Any]] = []

    async def log(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        record = logging.LogRecord("test", logging.INFO, "", 0, "a message", None, None)
        lines.append(json.loads(JsonFormatter().format(record)))
        return SynthesizeResponse()

    async with serve_synthesizer(log) as stub:
        await stub.Synthesize(synthesize_request())
        await stub.Synthesize(synthesize_request(), metadata=(SAMPLED,))
        with traced() as spans:
            await stub.Synthesize(synthesize_request())
    assert "trace_id" not in lines[0]
    assert (lines[1]["trace_id"], lines[1]["span_id"]) == (TRACE, PARENT)
    (served,) = [span for span in spans if span.kind is SpanKind.SERVER]
    assert (lines[2]["trace_id"], lines[2]["span_id"]) == (served.trace_id, served.span_id)
    assert lines[2]["request_id"]


def test_a_server_outside_gets_no_tracestate() -> None:
    assert tracing.headers() == {}
    span, token = tracing.start_server_span([SAMPLED, ("tracestate", "vendor=private")], "name", {})
    try:
        assert tracing.headers() == {"traceparent": SAMPLED[1]}
    finally:
        tracing.end_server_span(span, token)
