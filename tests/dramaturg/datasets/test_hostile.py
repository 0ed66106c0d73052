"""Files that were not written in good faith, and very large ones."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.datasets import DatasetError, DatasetReader, Format, Row
from tests.support.datasets import faults, read

GOOD = b'{"task": {"goal": "Make tea"}, "candidates": [{"id": "a", "text": "1. Boil."}]}\n'


def test_a_line_of_a_megabyte_is_read_and_its_limits_are_checked() -> None:
    long = json.dumps({"task": {"goal": "x" * (1 << 20)}}).encode() + b"\n"
    rows, manifest = read(long + GOOD)
    assert manifest.row_count == 1
    assert "task.goal: has 1048576 characters" in faults(rows)[0]


def test_a_line_beyond_the_limit_is_told_and_passed_over() -> None:
    rows, _ = read(b" " * (17 << 20) + b"\n" + GOOD)
    assert faults(rows) == ["1: : is longer than 16 MiB, the longest that a line may be"]
    assert isinstance(rows[1], Row)
    assert rows[1].line == 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"task": {"goal": "a\x00b"}}', "is not JSON: Invalid control character"),
        (b'"\xff\xfe"', "is not UTF-8"),
        (b"[" * 200_000, "is nested too deeply"),
        (b'{"task":' * 200_000, "is nested too deeply"),
        (b'{"task": {"goal": "\\ud800"}, "candidates": [{"id": "a", "text": "1."}]}', ""),
        (b'{"options": {"repeatIndex": ' + b"9" * 10_000 + b"}}", "is not JSON: Exceeds the limit"),
        (b'{"options": {"repeatIndex": 1e400}}', "options.repeatIndex"),
        (b'{"options": {"sampling": {"topP": 1' + b"0" * 400 + b"}}}", "int too large to convert to float"),
        (b'{"mechanism": 1e400}', "cannot convert float infinity to integer"),
        (b'{"mechanism": "\\ud800"}', "surrogates not allowed"),
        (b'{"\\ud800": 1}', "surrogates not allowed"),
        (b'{"task": null, "candidates": [null]}', ""),
    ],
)
def test_a_bad_line_is_told_and_the_next_is_read(line: bytes, expected: str) -> None:
    rows, manifest = read(line + b"\n" + GOOD)
    assert manifest.row_count == manifest.invalid_row_count == 1
    assert expected in faults(rows)[0]


def test_no_depth_breaks_the_reader() -> None:
    depths = range(sys.getrecursionlimit() - 300, sys.getrecursionlimit())
    for opening, closing in ((b'{"a":', b"}"), (b"[", b"]")):
        lines = (
            b'{"task": {"constraints": ' + opening * depth + b"1" + closing * depth + b"}}\n"
            for depth in depths
        )
        rows, manifest = read(b"".join(lines))
        assert manifest.invalid_row_count == len(depths)
        assert "is nested too deeply" in faults(rows)[-1]


@pytest.mark.parametrize(
    "value",
    [{"x" * (1 << 20): 1}, {"mechanism": "x" * (1 << 20)}, {"options": {"repeatIndex": "x" * (1 << 20)}}],
)
def test_what_a_row_holds_is_not_repeated_at_length(value: Any) -> None:
    (fault,) = faults(read(json.dumps(value).encode())[0])
    assert len(fault) < 1000


def test_all_errors_are_counted_and_the_first_are_kept() -> None:
    _, manifest = read(b"{\n" * 1000 + GOOD)
    assert manifest.invalid_row_count == 1000
    assert [error.line for error in manifest.errors] == list(range(1, 51))


@pytest.mark.parametrize("form", [Format.JSONL, Format.CSV])
def test_a_truncated_gzip_is_told_after_what_can_be_read(form: Format) -> None:
    plain = GOOD * 2000 if form is Format.JSONL else b"task.goal\n" + b"Make tea\n" * 20_000
    packed = gzip.compress(plain)
    reader = DatasetReader(io.BytesIO(packed[: len(packed) // 2]), EvaluateScriptsRequest, form)
    with pytest.raises(DatasetError, match="is damaged: gzip cannot unpack what follows line"):
        list(reader)


def test_a_damaged_gzip_is_told() -> None:
    packed = bytearray(gzip.compress(GOOD * 2000))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(DatasetError, match="is damaged"):
        read(bytes(packed))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(Format))
def test_no_bytes_break_the_reader(content: bytes, form: Format) -> None:
    try:
        rows, manifest = read(content, form)
    except DatasetError as error:
        assert str(error)  # noqa: PT017
    else:
        assert len(rows) == manifest.row_count + manifest.invalid_row_count


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda part: (
            st.lists(part)
            | st.dictionaries(
                st.sampled_from(["task", "goal", "candidates", "id", "tags", "options", "x"]), part
            )
        ),
        max_leaves=20,
    )
)
def test_no_json_breaks_the_reader(value: Any) -> None:
    rows, _ = read(json.dumps(value).encode())
    assert len(rows) == 1


class Endless(io.RawIOBase):
    """A file made as it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = next(self._pieces, b"")
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def peak(make: Callable[[], BinaryIO], form: Format, expected: int) -> int:
    """The most memory taken while a dataset is read, in bytes."""
    file = make()
    tracemalloc.start()
    try:
        rows = sum(isinstance(row, Row) for row in DatasetReader(file, EvaluateScriptsRequest, form))
        assert rows == expected
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def json_lines(count: int) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(Endless(GOOD for _ in range(count))))


def csv_lines(count: int) -> BinaryIO:
    header = b"task.goal,candidates.0.id,candidates.0.text\n"
    pieces = (b"Make tea,a,1. Boil.\n" if number else header for number in range(count + 1))
    return cast("BinaryIO", io.BufferedReader(Endless(pieces)))


@pytest.mark.endurance
@pytest.mark.timeout(600)  # tracing allocations takes several times as long as reading
@pytest.mark.parametrize("form", Format)
def test_memory_is_flat_over_100_000_rows(form: Format, tmp_path: Any) -> None:
    def make(count: int) -> BinaryIO:
        if form is Format.JSONL:
            return json_lines(count)
        if form is Format.CSV:
            return csv_lines(count)
        path = tmp_path / f"{count}.parquet"
        columns = {"task.goal": ["Make tea"] * count, "candidates": [[{"id": "a", "text": "1."}]] * count}
        parquet.write_table(pa.table(columns), path, row_group_size=10_000)
        return cast("BinaryIO", path.open("rb"))

    peak(partial(make, 100), form, 100)  # what is loaded once
    few, many = (peak(partial(make, count), form, count) for count in (5_000, 100_000))
    assert many / few < 1.2, f"{few} bytes at 5,000 rows, {many} at 100,000"


@pytest.mark.endurance
def test_a_bomb_does_not_fill_the_memory(tmp_path: Any) -> None:
    bomb = tmp_path / "bomb.jsonl.gz"
    with gzip.open(bomb, "wb") as file:
        for _ in range(300):
            file.write(b" " * (1 << 20))
        file.write(b"\n" + GOOD)
    taken = peak(lambda: bomb.open("rb"), Format.JSONL, 1)
    assert taken < 100 << 20
