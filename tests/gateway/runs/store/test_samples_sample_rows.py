"""Samples as rows of the tables, and as bytes between processes."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.runs.records import NewSample
from gateway.runs.store.codec import unpack
from gateway.runs.store.samples import (
    GROUP_BYTES,
    GROUP_SIZE,
    decode_rows,
    encode_rows,
    row_groups,
    sample_row,
)
from tests.support.runs import invalid_row, rows, sample_rows

TEXTS = st.text(max_size=20)
VALID = st.builds(
    NewSample,
    index=st.integers(0, 2**62),
    line=st.integers(0, 2**62),
    sample_id=TEXTS,
    tags=st.dictionaries(TEXTS, TEXTS, max_size=3),
    request=st.binary(max_size=50),
)
SAMPLES = st.lists(VALID | st.builds(invalid_row, st.integers(0, 1000)), max_size=5)


@given(SAMPLES)
def test_rows_are_the_same_after_a_process(samples: list[NewSample]) -> None:
    made = sample_rows(samples)
    assert decode_rows(encode_rows(made)) == made


def test_a_valid_row_has_its_request_and_an_invalid_one_its_failure() -> None:
    valid, invalid = sample_rows([*rows([7]), invalid_row(8)])
    assert (valid.sample, valid.line, valid.sample_id, valid.failure) == (7, 8, "s7", None)
    assert (json.loads(valid.tags), valid.outcome) == ({"level": "easy"}, None)
    assert valid.request is not None
    assert unpack(valid.request) == b"request 7"
    assert (invalid.request, invalid.failure) == (None, "INVALID_ARGUMENT")
    assert invalid.outcome is not None


def test_texts_can_be_stored() -> None:
    assert sample_row(NewSample(0, 1, "a\0b", {}, b"")).sample_id == "a\N{REPLACEMENT CHARACTER}b"


def test_a_group_has_a_bounded_number_of_rows_and_bytes() -> None:
    assert [len(group) for group in row_groups(rows(range(2 * GROUP_SIZE + 1)))] == [GROUP_SIZE] * 2 + [1]
    large = [NewSample(index, 1, "", {}, bytes(GROUP_BYTES // 2)) for index in range(3)]
    assert [len(group) for group in row_groups(large)] == [2, 1]
    assert list(row_groups([])) == []
