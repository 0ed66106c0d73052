"""The headers of W3C Trace Context, beside OpenTelemetry's reading of them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from dramaturg.service.telemetry import trace_context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"

hexadecimal = "0123456789abcdefABF"
fields = st.tuples(
    st.sampled_from(["00", "01", "fe", "ff", "0", "FF", "000"]) | st.text(hexadecimal, max_size=3),
    st.sampled_from([TRACE, "0" * 32, TRACE.upper()]) | st.text(hexadecimal, min_size=31, max_size=33),
    st.sampled_from([SPAN, "0" * 16]) | st.text(hexadecimal, min_size=15, max_size=17),
    st.sampled_from(["00", "01", "03"]) | st.text(hexadecimal, max_size=3),
).map("-".join)
headers = st.builds(
    lambda before, header, after: before + header + after,
    st.sampled_from(["", " ", "\t", "-"]),
    fields,
    st.sampled_from(["", " ", "\t", "-", "-more", "more", "- "]),
) | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80)


@given(headers)
@example(HEADER)
@example(f"00-{TRACE}-{SPAN}-03")
@example(f"{HEADER}-more")
@example(f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like")
@example(f"cc-{TRACE}-{SPAN}-01.what-the-future-will-be-like")
def test_a_header_is_read_as_opentelemetry_reads_it(header: str) -> None:
    found = trace_context.read([("traceparent", header)])
    extracted = TraceContextTextMapPropagator().extract({"traceparent": header})
    theirs = trace.get_current_span(extracted).get_span_context()
    assert (found is not None) == theirs.is_valid
    if found is not None:
        assert (found.trace_id, found.span_id) == (f"{theirs.trace_id:032x}", f"{theirs.span_id:016x}")
        assert found.sampled == theirs.trace_flags.sampled
        again = trace_context.read(list(found.headers().items()))
        assert again == found


@pytest.mark.parametrize("value", [b"bytes", 5, None])
def test_metadata_of_other_kinds_is_passed_over(value: object) -> None:
    assert trace_context.read([("traceparent", value)]) is None
    assert trace_context.read([("traceparent", HEADER), ("tracestate", value)]) is not None


def test_what_vendors_carry_goes_along_with_a_trace_and_not_alone() -> None:
    states = [("tracestate", "a=1"), ("tracestate", "b=2")]
    found = trace_context.read([("other", "x"), *states, ("traceparent", HEADER)])
    assert found is not None
    assert found.headers() == {"traceparent": HEADER, "tracestate": "a=1,b=2"}
    assert trace_context.read(states) is None


def test_of_several_headers_the_last_counts() -> None:
    """A channel adds its own to what whoever makes the call states."""
    stated = f"00-{SPAN}{SPAN}-{SPAN}-01"
    found = trace_context.read([("traceparent", stated), ("traceparent", HEADER)])
    assert found is not None
    assert found.trace_id == TRACE


@pytest.mark.parametrize("state", ["a=\u00fc", "a=1\r\nx: y", "a=\0", "a=\t1", "a=\x7f"])
def test_what_grpc_would_not_send_is_not_passed_on(state: str) -> None:
    found = trace_context.read([("traceparent", HEADER), ("tracestate", "b=2"), ("tracestate", state)])
    assert found is not None
    assert found.headers() == {"traceparent": HEADER}


def member(number: int, length: int) -> str:
    """A member of a list that has so many characters."""
    return f"v{number:02}=".ljust(length, "x")


@pytest.mark.parametrize(
    ("sent", "passed_on"),
    [
        ([(1, 512)], [(1, 512)]),
        ([(1, 513)], []),
        ([(1, 129), (2, 128), (3, 400)], [(2, 128)]),
        (
            [(1, 100), (2, 100), (3, 100), (4, 100), (5, 108)],
            [(1, 100), (2, 100), (3, 100), (4, 100), (5, 108)],
        ),
        ([(1, 100), (2, 100), (3, 100), (4, 100), (5, 109)], [(1, 100), (2, 100), (3, 100), (4, 100)]),
        ([(0, 200), *[(number, 102) for number in range(1, 6)]], [(number, 102) for number in range(1, 5)]),
        (
            [(0, 200), (1, 104), *[(number, 101) for number in range(2, 6)]],
            [(1, 104), *[(number, 101) for number in range(2, 6)]],
        ),
        ([(number, 8) for number in range(99)], [(number, 8) for number in range(57)]),
    ],
)
def test_no_more_is_passed_on_than_fits(
    sent: list[tuple[int, int]], passed_on: list[tuple[int, int]]
) -> None:
    states = [("tracestate", member(*one)) for one in sent]
    found = trace_context.read([("traceparent", HEADER), *states])
    assert found is not None
    assert found.state == ",".join(member(*one) for one in passed_on)
    assert len(found.state) <= 512
