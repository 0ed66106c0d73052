from __future__ import annotations

import csv
import io
import tracemalloc
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1.verdict_pb2 import Finding
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.datasets.spreadsheet import unescape_cell
from dramaturg.results.frames import header, table_row
from gateway.runs.results import PIECE_BYTES, as_csv, as_json_lines, as_parquet, in_pieces

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
results = st.lists(
    st.builds(
        RunResult,
        sample_index=st.integers(0, 2**63),
        model=texts,
        rationale=texts,
        value=st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
        tags=st.dictionaries(st.sampled_from(["a", "b,c"]), texts),
        findings=st.lists(st.builds(Finding, description=texts), max_size=2),
    ),
    max_size=5,
)
TAGS = ["a", "b,c"]


FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


@given(results)
def test_a_table_in_csv_says_what_the_rows_say(found: list[RunResult]) -> None:
    data = b"".join(as_csv(found, TAGS)).decode()
    cells = list(csv.reader(io.StringIO(data, newline="")))
    assert not any(cell.startswith(FORMULA) for row in cells for cell in row if not _is_number(cell))
    read = [[unescape_cell(cell) for cell in row] for row in cells]
    assert read[0] == header(TAGS)
    assert read[1:] == [["" if c is None else str(c) for c in table_row(result, TAGS)] for result in found]


@given(results)
def test_a_table_in_parquet_says_what_the_rows_say(found: list[RunResult]) -> None:
    table = pq.read_table(io.BytesIO(b"".join(as_parquet(found, TAGS))))
    assert [list(row.values()) for row in table.to_pylist()] == [table_row(r, TAGS) for r in found]


@given(st.lists(st.binary(max_size=600)))
def test_pieces_are_the_same_bytes(parts: list[bytes]) -> None:
    assert b"".join(in_pieces(parts)) == b"".join(parts)


def test_pieces_are_neither_small_nor_large() -> None:
    sizes = [len(piece) for piece in in_pieces([b"x" * 1000] * 3000 + [b"y" * 5_000_000])]
    assert max(sizes) <= 4 * PIECE_BYTES
    assert sorted(sizes)[2] >= PIECE_BYTES // 4


def _many(count: int) -> Iterator[RunResult]:
    return (RunResult(sample_index=index, rationale="r" * 500, model="m") for index in range(count))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_export() -> None:
    for write in (as_json_lines, lambda rows: as_csv(rows, []), lambda rows: as_parquet(rows, [])):
        peaks = []
        for count in (6_000, 30_000):
            tracemalloc.start()
            size = sum(map(len, write(_many(count))))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert size > 0
        assert peaks[1] < 1.5 * peaks[0]
