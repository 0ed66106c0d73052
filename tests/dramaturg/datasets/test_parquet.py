from __future__ import annotations

import io
import sys
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from dramaturg.datasets import DatasetError, Format, Row
from tests.support.datasets import faults, read

CANDIDATES = [{"id": "a", "text": "1. Boil."}]


def table(columns: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file)
    return file.getvalue()


def only(content: bytes) -> Any:
    (row,), _ = read(content, Format.PARQUET)
    assert isinstance(row, Row), row
    return row.request


def test_columns_may_be_nested_or_named_by_paths() -> None:
    nested = only(table({"task": [{"goal": "Make tea"}], "candidates": [CANDIDATES]}))
    flat = only(table({"task.goal": ["Make tea"], "candidates": [CANDIDATES]}))
    assert nested == flat


@pytest.mark.parametrize(
    "tags",
    [
        pa.array([[("level", "easy")]], pa.map_(pa.string(), pa.string())),
        pa.array([{"level": "easy", "other": None}]),
        pa.array([{"level": "easy"}]).cast(pa.struct({"level": pa.large_string()})),
    ],
)
def test_tags_are_a_map_or_a_struct(tags: Any) -> None:
    request = only(table({"task.goal": ["Make tea"], "candidates": [CANDIDATES], "tags": tags}))
    assert dict(request.tags) == {"level": "easy"}


def test_nulls_are_nothing() -> None:
    request = only(table({"task": [{"goal": "Make tea", "topic": None}], "candidates": [CANDIDATES]}))
    assert not request.task.topic


def test_what_pandas_writes_is_read_without_its_index() -> None:
    frame = pd.DataFrame({"task.goal": ["A", "B"], "candidates": [CANDIDATES] * 2}, index=["x", "y"])
    file = io.BytesIO()
    frame.to_parquet(file)
    rows, manifest = read(file.getvalue(), Format.PARQUET)
    assert [row.line for row in rows] == [1, 2]
    assert manifest.row_count == 2


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"task.goal": [7]}, "1: task.goal: "),
        ({"task": ["text"]}, "1: task: is not a struct but str"),
        ({"task": [{"goal": "A", "gaol": "B"}]}, "1: task.gaol: there is no such field; there are"),
        ({"task.goal": ["A"], "task.constraints": ["hot"]}, "1: task.constraints: is not a list but str"),
        ({"task.goal": [b"\xff"]}, "1: task.goal: is not UTF-8"),
        ({"task.goal": ["A"], "tags": ["x"]}, "1: tags: is not a map but str"),
    ],
)
def test_a_wrong_row_is_told_with_its_field(columns: dict[str, Any], expected: str) -> None:
    rows, manifest = read(table({**columns, "candidates": [CANDIDATES]}), Format.PARQUET)
    assert manifest.invalid_row_count == 1
    assert faults(rows)[0].startswith(expected)


def test_keys_of_a_map_are_texts() -> None:
    tags = pa.array([[(0, "x")]], pa.map_(pa.int32(), pa.string()))
    rows, _ = read(table({"task.goal": ["A"], "candidates": [CANDIDATES], "tags": tags}), Format.PARQUET)
    assert "1: " in faults(rows)[0]


def test_rows_without_columns_are_told() -> None:
    frame = pd.DataFrame(index=["x", "y"])
    file = io.BytesIO()
    frame.to_parquet(file)
    with pytest.raises(DatasetError, match="has rows and no columns"):
        read(file.getvalue(), Format.PARQUET)


def test_an_unknown_column_is_told_with_the_nearest() -> None:
    with pytest.raises(DatasetError, match="nearest are candidates"):
        read(table({"candidate": ["x"]}), Format.PARQUET)


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"no Parquet at all" * 100, b"PAR1" + b"\x00" * 100 + b"PAR1"]
)
def test_what_is_no_parquet_is_told(content: bytes) -> None:
    with pytest.raises(DatasetError, match="cannot be read as Parquet"):
        read(content, Format.PARQUET)


def test_a_damaged_file_is_told() -> None:
    content = bytearray(
        table({"task.goal": [f"{n}" * 9 for n in range(5000)], "candidates": [CANDIDATES] * 5000})
    )
    content[500:3000] = b"\xff" * 2500
    with pytest.raises(DatasetError, match="cannot be read as Parquet"):
        read(bytes(content), Format.PARQUET)


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DatasetError, match=r"dramaturg\[datasets\]"):
        read(b"", Format.PARQUET)


def broken_text(goals: list[bytes]) -> pa.Array:
    """Texts that are not checked to be UTF-8."""
    binary = pa.array(goals, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(goals), binary.buffers())


TIMES = [0, 1 << 62, -(1 << 62)]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("task.goal", broken_text([b"Make tea", b"\xff\xfe", b"\xed\xa0\x80"])),
        ("tags.when", pa.array(TIMES, pa.timestamp("ms"))),
        ("tags.when", pa.array(TIMES, pa.timestamp("us", "UTC"))),
        ("tags.when", pa.array([0, 1, 2], pa.timestamp("us", "No/Such_Zone"))),
        ("tags.when", pa.array([0, 1 << 30, -(1 << 30)], pa.date32())),
        ("tags.when", pa.array(TIMES, pa.duration("s"))),
    ],
)
def test_a_value_that_cannot_be_decoded_fails_its_row_alone(column: str, values: Any) -> None:
    goals = {} if column == "task.goal" else {"task.goal": ["Make tea"] * 3}
    content = table({**goals, "candidates": [CANDIDATES] * 3, column: values})
    rows, manifest = read(content, Format.PARQUET)
    assert [row.line for row in rows] == [1, 2, 3]
    assert manifest.invalid_row_count >= 2
    assert all(len(fault) < 500 for fault in faults(rows))


def test_dictionaries_change_no_value() -> None:
    texts = [f"1. Step {number % 7}." for number in range(3000)]
    columns = {
        "task.goal": texts,
        "candidates": [[{"id": "a", "text": text}, {"id": "b", "text": None}] for text in texts],
        "tags": pa.array([[("level", text)] for text in texts], pa.map_(pa.string(), pa.string())),
    }
    read_rows = []
    for options in ({"row_group_size": 700}, {"use_dictionary": False}, {"dictionary_pagesize_limit": 64}):
        file = io.BytesIO()
        parquet.write_table(pa.table(columns), file, **options)
        found = read(file.getvalue(), Format.PARQUET)[0]
        read_rows.append([row.request for row in found if isinstance(row, Row)])
    assert read_rows[0] == read_rows[1] == read_rows[2]
    assert len(read_rows[0]) == 3000


def test_a_row_is_measured_before_it_is_decoded() -> None:
    goals = ["short", "x" * (17 << 20), "short"]
    rows, _ = read(table({"task.goal": goals, "candidates": [CANDIDATES] * 3}), Format.PARQUET)
    assert faults(rows) == ["2: : has 17 MiB when it is decoded; at most 16 MiB are allowed"]


def test_many_elements_count_without_texts() -> None:
    wide = pa.array([[None] * 400_000, ["x"]], pa.list_(pa.string()))
    content = table({"task.goal": ["A", "B"], "task.constraints": wide, "candidates": [CANDIDATES] * 2})
    rows, _ = read(content, Format.PARQUET)
    assert faults(rows)[0].startswith("1: : has 24 MiB when it is decoded")
    assert isinstance(rows[1], Row)
