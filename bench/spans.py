"""What a span costs here beside one of OpenTelemetry's SDK: to record it, to carry it on, and to encode it.

Both serve a call that a caller's span is around, and make one under it. ``--json`` prints one object: the
processor time of OpenTelemetry's SDK over ours, the best of some rounds that take turns.
"""

from __future__ import annotations

import argparse
import contextvars
import json
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from dramaturg.service.telemetry import otlp, tracing
from dramaturg.service.telemetry.spans import RecordedSpan, Recorder

METADATA = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
METHOD = "dramaturg.api.agents.v1.CriticService/Critique"
SERVED = {"rpc.system.name": "grpc", "rpc.method": METHOD}
MADE = {**SERVED, "server.address": "dns:///critic:50051"}
Span = TypeVar("Span")
CALLS, ROUNDS, BATCH = 1024, 20, 512


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    taken: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(ROUNDS):
        taken["ours"].append(ours())
        taken["theirs"].append(theirs())
    ratio = min(taken["theirs"]) / min(taken["ours"])
    if arguments.json:
        json.dump({"sdk_over_ours": ratio}, sys.stdout)
        print()
    else:
        print(f"a span of OpenTelemetry's SDK takes {ratio:.1f} times the processor time of one here")
    return 0


def ours() -> float:
    """Seconds for all calls."""
    ended: list[RecordedSpan] = []
    tracing.trace_with(Recorder(ended.append, 1))

    def call() -> None:
        served = tracing.enter_call(METADATA.items(), METHOD, SERVED)
        made, _ = tracing.begin_call(METHOD, MADE)
        for span in (made, served):
            span.set("rpc.response.status_code", "OK")
            span.end()

    sender = otlp.resource_spans({"service.name": "bench"}, "")
    try:
        return _timed(call, lambda: _encoded(ended, lambda batch: otlp.export_request(sender, batch)))
    finally:
        tracing.trace_with(None)


def theirs() -> float:
    """Seconds for all calls."""
    ended: list[ReadableSpan] = []

    class Keep(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            ended.append(span)

    provider = TracerProvider(resource=Resource({"service.name": "bench"}), shutdown_on_exit=False)
    provider.add_span_processor(Keep())
    tracer, headers = provider.get_tracer("bench"), TraceContextTextMapPropagator()

    def call() -> None:
        around = headers.extract(METADATA, context.Context())
        served = tracer.start_span(METHOD, around, trace.SpanKind.SERVER, SERVED)
        context.attach(trace.set_span_in_context(served, around))
        made = tracer.start_span(METHOD, kind=trace.SpanKind.CLIENT, attributes=MADE)
        headers.inject({}, trace.set_span_in_context(made))
        for span in (made, served):
            span.set_attribute("rpc.response.status_code", "OK")
            span.end()

    return _timed(call, lambda: _encoded(ended, encode_spans))


def _timed(call: Callable[[], None], encode: Callable[[], None]) -> float:
    begun = time.process_time()
    for _ in range(CALLS):
        contextvars.copy_context().run(call)
    encode()
    return time.process_time() - begun


def _encoded(spans: list[Span], encode: Callable[[list[Span]], object]) -> None:
    for first in range(0, len(spans), BATCH):
        encode(spans[first : first + BATCH])


if __name__ == "__main__":
    sys.exit(main())
