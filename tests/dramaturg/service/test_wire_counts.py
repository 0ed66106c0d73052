from __future__ import annotations

import time
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.internal.encoder import _VarintBytes  # type: ignore[attr-defined]
from hypothesis import given, settings
from hypothesis import strategies as st

from dramaturg.api.alignment.v1.agreement_pb2 import MeasureAgreementRequest
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import SummarizeRequest
from dramaturg.api.evaluation.v1.run_service_pb2 import ListRunsRequest
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.service.validation import violations
from dramaturg.service.wire_counts import SMALL_BYTES, Excess, find_excess
from tests.hostile.requests import empty, filled, lists, mutations
from tests.support.auth import every_method

CANDIDATES = b"\x12\x00"
MOST = 16 << 20


def excess(data: bytes, message: type[Any] = EvaluateScriptsRequest) -> Excess | None:
    return find_excess(data, message.DESCRIPTOR)


def nested(count: int) -> bytes:
    steps = b"\x0a\x00" * count
    for tag in (b"\x1a", b"\x12"):  # candidates.script
        steps = tag + _VarintBytes(len(steps)) + steps
    return steps


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (CANDIDATES * (MOST // 2), "candidates"),
        (b"\x0a\xff\xff\x03" + b"\x0a\xfb\xff\x03" + b"x" * 65531 + CANDIDATES * 100_000, "candidates"),
        (nested(2_000_000), "candidates.script.steps"),
        (b"\x0b" * 1_000_000, ""),
        (b"\x08\x01" * 1_000_000, ""),
        (b"\xf8\x3f\x01" * 1_000_000, ""),
        (b"\xff" * 1_000_000, ""),
        (b"\x12\x85", None),
    ],
    ids=["many", "after a long part", "nested", "groups", "repeated", "unknown", "varint", "small"],
)
def test_many_elements_are_found_in_little_time(data: bytes, field: str | None) -> None:
    begun = time.thread_time()
    found = excess(data)
    assert time.thread_time() - begun < 0.5
    assert (None if found is None else found.field) == field


@pytest.mark.parametrize("data", [b"\x1a\xa0\x8d\x06" + b"\x01" * 100_000, b"\x18\x01" * 100_000])
def test_numbers_are_counted_packed_and_apart(data: bytes) -> None:
    assert len(ListRunsRequest.FromString(data).states) == 100_000
    assert excess(data, ListRunsRequest) == Excess("states", 16)


@pytest.mark.parametrize("method", [*every_method()], ids=lambda method: method.full_name)
def test_what_the_contracts_allow_is_read(method: MethodDescriptor) -> None:
    # Elements are counted whatever they hold.
    request = filled(method.input_type)
    for mutation in mutations(request, element=empty):
        data = mutation.request.SerializeToString()
        if len(data) > SMALL_BYTES and find_excess(data, method.input_type) is not None:
            assert violations(mutation.request), f"{mutation.field}: {mutation.label}"
    for field, many in lists(request, 33_000, element=empty):
        data = many.SerializeToString()
        found = find_excess(data, method.input_type)
        if found is not None:
            assert found.field == field.replace("[0]", "")


def test_lists_without_a_limit_are_not_counted() -> None:
    results = SummarizeRequest()
    sample = results.samples.add()
    for _ in range(50_000):
        sample.scripts.candidates.add()
    assert excess(results.SerializeToString(), SummarizeRequest) is None
    items = MeasureAgreementRequest()
    for number in range(100_000):
        items.items.add().id = str(number)
    assert excess(items.SerializeToString(), MeasureAgreementRequest) is None


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1, max_size=200), st.integers(0, 3))
def test_no_bytes_break_the_walk(data: bytes, offset: int) -> None:
    excess(data[offset:] * (2 * SMALL_BYTES // len(data)))
