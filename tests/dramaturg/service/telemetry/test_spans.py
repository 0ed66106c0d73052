"""What is recorded, and how it is encoded: as OpenTelemetry's SDK would have it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from dramaturg.service.telemetry import otlp, trace_context
from dramaturg.service.telemetry.spans import Attributes, Kind, RecordedSpan, Recorder
from dramaturg.service.telemetry.trace_context import TraceContext
from tests.support.telemetry import spans_of

PARENT = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "01", "vendor=1")
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = (
    texts
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.lists(texts, max_size=3)
)


def record(
    attributes: Attributes, kind: Kind = Kind.INTERNAL, parent: TraceContext | None = None, **given: Any
) -> RecordedSpan:
    """A span that has ended."""
    ended: list[RecordedSpan] = []
    Recorder(ended.append, 1).begin("name", kind, attributes, parent, **given).end()
    return ended[0]


def theirs(span: RecordedSpan, resource: Resource) -> Any:
    """The request that OpenTelemetry would make of such a span."""

    def named(span_id: str, *, remote: bool) -> trace.SpanContext:
        state = trace.TraceState.from_header([span.context.state])
        flags = trace.TraceFlags(int(span.context.flags, 16))
        return trace.SpanContext(int(span.context.trace_id, 16), int(span_id, 16), remote, flags, state)

    return encode_spans(
        [
            ReadableSpan(
                name=span.name,
                context=named(span.context.span_id, remote=False),
                parent=named(span.parent_id, remote=span.remote) if span.parent_id else None,
                resource=resource,
                attributes=span.attributes,
                kind=trace.SpanKind[span.kind.name],
                status=trace.Status(trace.StatusCode.ERROR if span.failed else trace.StatusCode.UNSET),
                start_time=span.began,
                end_time=span.ended,
                instrumentation_scope=InstrumentationScope(otlp.SCOPE),
            )
        ]
    )


@given(
    st.dictionaries(texts.filter(bool), values, max_size=5),
    st.sampled_from(Kind),
    st.sampled_from([None, PARENT]),
    st.booleans(),
    st.booleans(),
)
def test_a_span_is_encoded_as_opentelemetry_encodes_it(
    attributes: dict[str, Any], kind: Kind, parent: TraceContext | None, remote: bool, failed: bool
) -> None:
    span = record(attributes, kind, parent, remote=remote)
    assert span.remote == (remote and parent is not None)
    span.failed = failed
    resource = Resource({"service.name": "test", "process.pid": 3}, "https://example.org/schema")
    ours = otlp.export_request(otlp.resource_spans(resource.attributes, resource.schema_url), [span])
    expected = theirs(span, resource)
    (told,) = expected.resource_spans[0].scope_spans[0].spans
    # OpenTelemetry leaves out the flags of the trace itself, and has an empty status where there is none.
    told.flags |= 1
    if not failed:
        told.ClearField("status")
    assert ours == expected


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("half a character: \ud83d", "half a character: ?"),
        (2**63, str(2**63)),
        (None, "None"),
        (["\ud83d"], ["?"]),
    ],
)
def test_what_cannot_be_told_costs_no_span(value: Any, told: object) -> None:
    (span,) = spans_of(otlp.export_request(otlp.resource_spans({}, ""), [record({"value": value})]))
    assert span.attributes == {"value": told}


def test_the_name_of_a_span_costs_it_neither() -> None:
    span = record({})
    span.name = "chat \ud83d"
    (told,) = spans_of(otlp.export_request(otlp.resource_spans({}, ""), [span]))
    assert told.name == "chat ?"


@given(st.sampled_from([0.0, 0.1, 0.5, 1.0]) | st.floats(0, 1), st.integers(1, 2**128 - 1))
@example(0.0, 2**64)
def test_the_same_traces_are_kept_as_by_opentelemetrys_sampler(ratio: float, trace_id: int) -> None:
    recorder = Recorder(lambda _: None, ratio)
    recorder._random_bits = lambda bits: trace_id if bits == 128 else 1
    decided = TraceIdRatioBased(ratio).should_sample(None, trace_id, "name").decision
    assert recorder.begin("name", Kind.INTERNAL, {}).recording == (decided is Decision.RECORD_AND_SAMPLE)


def test_no_id_is_one_that_means_none() -> None:
    recorder = Recorder(lambda _: None, 1)
    recorder._random_bits = lambda bits: 0
    context = recorder.begin("name", Kind.INTERNAL, {}).context
    assert context is not None
    assert trace_context.read([*context.headers().items()]) == context


def test_ids_are_others_in_a_program_that_seeds_its_random_numbers() -> None:
    names = set()
    for _ in range(2):
        random.seed(1)
        names.add(record({}).context.trace_id)
    assert len(names) == 2


def test_attributes_given_to_one_span_are_not_anothers() -> None:
    shared = {"a": 1}
    ended: list[RecordedSpan] = []
    recorder = Recorder(ended.append, 1)
    span = recorder.begin("one", Kind.INTERNAL, shared)
    span.set("b", 2)
    span.end()
    assert shared == {"a": 1}
