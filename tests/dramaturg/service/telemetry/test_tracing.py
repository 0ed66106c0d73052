"""Spans, and how they travel."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from dramaturg.api.agents.v1.critic_service_pb2 import CritiqueRequest, CritiqueResponse
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import invalid
from dramaturg.service.logs import JsonFormatter
from dramaturg.service.telemetry import tracing
from tests.support.grpc_servers import (
    METHODS,
    arities,
    call_arity,
    critic,
    critique_request,
    relay,
    serve,
    serve_critic,
    silent,
)
from tests.support.telemetry import traced

METHOD = "dramaturg.api.agents.v1.CriticService/Critique"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = ("traceparent", f"00-{TRACE}-{PARENT}-01")
UNSAMPLED = ("traceparent", f"00-{TRACE}-{PARENT}-00")


@asynccontextmanager
async def two_hops() -> AsyncIterator[Any]:
    """A critic that asks another one; yields a call by a channel that is not ours, and traces nothing."""
    async with (
        serve(critic(silent)) as inner,
        serve(critic(relay(inner.target))) as outer,
        grpc.aio.insecure_channel(outer.target) as channel,
    ):
        yield bare(channel)


def bare(channel: grpc.aio.Channel) -> Any:
    return channel.unary_unary(f"/{METHOD}", CritiqueRequest.SerializeToString, CritiqueResponse.FromString)


def ids(span: ReadableSpan) -> tuple[str, str, str]:
    """Trace, span and parent."""
    assert span.context is not None
    parent = f"{span.parent.span_id:016x}" if span.parent else ""
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}", parent


async def test_every_hop_is_under_the_one_before_it() -> None:
    with traced() as spans:
        async with two_hops() as call:
            await call(critique_request(), metadata=(SAMPLED, ("tracestate", "vendor=1")))
    assert {span.name for span in spans} == {METHOD}
    by_parent = {ids(span)[2]: span for span in spans}
    outer = by_parent[PARENT]
    between = by_parent[ids(outer)[1]]
    inner = by_parent[ids(between)[1]]
    assert [span.kind.name for span in (outer, between, inner)] == ["SERVER", "CLIENT", "SERVER"]
    assert len(spans) == 3
    assert {ids(span)[0] for span in spans} == {TRACE}
    assert inner.context is not None
    assert inner.context.trace_state.get("vendor") == "1"


async def test_a_service_that_does_not_trace_leaves_no_gap() -> None:
    seen: list[dict[str, str]] = []

    async def look(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        seen.append(dict(context.invocation_metadata()))
        return CritiqueResponse()

    async with serve(critic(look)) as inner, serve_critic(relay(inner.target)) as stub:
        await stub.Critique(critique_request(), metadata=(SAMPLED, ("tracestate", "vendor=1")))
        await stub.Critique(critique_request())
    assert seen[0]["traceparent"] == SAMPLED[1]
    assert seen[0]["tracestate"] == "vendor=1"
    assert "traceparent" not in seen[1]


@pytest.mark.parametrize("method", [name for name, _, _ in METHODS])
async def test_each_arity_has_one_span_on_each_side(method: str) -> None:
    async def work() -> None:
        raise invalid("task", "is planted text")

    with traced() as spans:
        async with serve(arities(work)) as server, open_channel(server.target) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await call_arity(channel, method, critique_request())
    by_kind = {span.kind.name: span for span in spans}
    assert len(spans) == 2
    for span in spans:
        assert span.attributes is not None
        assert span.attributes["rpc.response.status_code"] == "INVALID_ARGUMENT"
        assert "planted" not in span.to_json()
    # It is the caller's fault, and no error of the server.
    assert by_kind["CLIENT"].status.status_code is StatusCode.ERROR
    assert by_kind["SERVER"].status.status_code is StatusCode.UNSET


async def test_a_call_that_is_cancelled_ends_its_spans() -> None:
    entered = asyncio.Event()

    async def hang(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        entered.set()
        await asyncio.Event().wait()
        return CritiqueResponse()

    with traced() as spans:
        async with serve_critic(hang, drain_grace_seconds=0.1) as stub:
            call = stub.Critique(critique_request())
            await entered.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
    codes = {span.kind.name: span.attributes["rpc.response.status_code"] for span in spans if span.attributes}
    assert codes == {"CLIENT": "CANCELLED", "SERVER": "CANCELLED"}


async def test_callers_decide_what_is_sampled_and_the_ratio_where_a_trace_begins() -> None:
    async with serve(critic(silent)) as server, grpc.aio.insecure_channel(server.target) as channel:
        call = bare(channel)
        with traced(sample_ratio=0) as none:
            await call(critique_request())
        with traced(sample_ratio=0) as one:
            await call(critique_request(), metadata=(SAMPLED,))
        with traced(sample_ratio=1) as unsampled:
            await call(critique_request(), metadata=(UNSAMPLED,))
    assert (len(none), len(one), len(unsampled)) == (0, 1, 0)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80))
def test_whatever_a_caller_says_of_its_trace_a_call_is_served(header: str) -> None:
    def enter() -> tracing.Ids | None:
        tracing.enter_call([("traceparent", header), ("tracestate", header)], "name", {}).end()
        return tracing.ids()

    with traced():
        assert contextvars.copy_context().run(enter) is not None
    contextvars.copy_context().run(enter)


async def test_a_span_that_fails_says_by_what_and_nothing_that_was_said() -> None:
    with traced() as spans, pytest.raises(ValueError, match="planted"), tracing.spanning("work"):
        raise ValueError("planted")
    (span,) = spans
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ValueError"
    assert "planted" not in span.to_json()


async def test_logs_name_the_trace_where_there_is_one() -> None:
    lines: list[dict[str, Any]] = []

    async def log(request: CritiqueRequest, context: Any) -> CritiqueResponse:
        record = logging.LogRecord("test", logging.INFO, "", 0, "a message", None, None)
        lines.append(json.loads(JsonFormatter().format(record)))
        return CritiqueResponse()

    async with serve_critic(log) as stub:
        await stub.Critique(critique_request())
        await stub.Critique(critique_request(), metadata=(SAMPLED,))
        with traced() as spans:
            await stub.Critique(critique_request())
    assert "trace_id" not in lines[0]
    assert (lines[1]["trace_id"], lines[1]["span_id"]) == (TRACE, PARENT)
    (served,) = [span for span in spans if span.kind.name == "SERVER"]
    assert (lines[2]["trace_id"], lines[2]["span_id"]) == ids(served)[:2]
    assert lines[2]["request_id"]
