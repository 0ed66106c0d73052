"""Spans as OTLP has them (https://opentelemetry.io/docs/specs/otlp/)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, SpanFlags, Status

from dramaturg.service.telemetry.spans import RecordedSpan

SCOPE = "dramaturg"
"""The instrumentation scope of all spans."""


def resource_spans(attributes: Mapping[str, Any], schema_url: str) -> ResourceSpans:
    """What sends the spans, and none yet.

    Args:
        attributes: What is known of it.
        schema_url: What the names of the attributes mean.
    """
    made = ResourceSpans(schema_url=schema_url)
    for name, value in attributes.items():
        _put(made.resource.attributes.add(key=name).value, value)
    return made


def export_request(sender: ResourceSpans, spans: Sequence[RecordedSpan]) -> ExportTraceServiceRequest:
    """A request that hands spans over. What cannot be told of a span is left out or told as a text.

    Args:
        sender: What sends them.
        spans: They, which have ended.
    """
    request = ExportTraceServiceRequest(resource_spans=[sender])
    scope_spans = request.resource_spans[0].scope_spans.add()
    scope_spans.scope.name = SCOPE
    # Messages are filled in where they stand: to copy each into its place takes twice as long.
    add = scope_spans.spans.add
    for span in spans:
        flags = int(span.context.flags, 16) | SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
        if span.remote:
            flags |= SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
        told = add(
            trace_id=bytes.fromhex(span.context.trace_id),
            span_id=bytes.fromhex(span.context.span_id),
            parent_span_id=bytes.fromhex(span.parent_id),
            trace_state=span.context.state,
            flags=flags,
            name=_sound(span.name),
            kind=span.kind.value,
            start_time_unix_nano=span.began,
            end_time_unix_nano=span.ended,
        )
        if span.failed:
            told.status.code = Status.STATUS_CODE_ERROR
        attribute = told.attributes.add
        for name, value in span.attributes.items():
            _put(attribute(key=name).value, value)
    return request


def _put(into: AnyValue, value: Any) -> None:
    if isinstance(value, str):
        into.string_value = _sound(value)
    elif isinstance(value, bool):
        into.bool_value = value
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        into.int_value = value
    elif isinstance(value, float):
        into.double_value = value
    elif isinstance(value, Sequence):
        into.array_value.SetInParent()  # an empty one is one too
        for one in value:
            _put(into.array_value.values.add(), one)
    else:
        into.string_value = str(value)


def _sound(text: str) -> str:
    """The text, with a mark for what UTF-8 cannot say: in JSON a model can answer half a character."""
    return text if text.isascii() else text.encode(errors="replace").decode()
