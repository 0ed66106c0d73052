from __future__ import annotations

import pytest

from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.datasets import DatasetError, Format, InvalidRow, Row
from tests.support.datasets import faults, read

HEADER = b"task.goal,candidates.0.id,candidates.0.text"


def test_records_are_those_of_rfc_4180() -> None:
    content = HEADER + b'\r\n"Make ""tea"", fast",a,"1. Boil.\r\n2. Pour."\r\n'
    (row,), _ = read(content, Format.CSV)
    assert isinstance(row, Row)
    assert row.request.task.goal == 'Make "tea", fast'
    assert row.request.candidates[0].text == "1. Boil.\r\n2. Pour."


def test_lines_are_numbered_where_their_records_begin() -> None:
    content = b"\xef\xbb\xbf" + HEADER + b'\n\nA,a,"1.\n2."\n\nB,a,1.\n'
    rows, _ = read(content, Format.CSV)
    assert [row.line for row in rows] == [3, 6]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"task.gaol", "nearest are task.goal"),
        (b"goal", "nearest are task.goal"),
        (b"quite.another", "there are task, candidates"),
        (b"task.goal.deep", '"task.goal.deep", which is no field'),
        (b"task.constraints.x", "'x' is no number"),
        (b"task.constraints.99999999", "is no number from 0"),
        (b"task.goal,task.goal", '"task.goal" and "task.goal", which set the same field'),
        (b"goldAnswer,gold_answer", "set the same field"),
        (b"task.goal,task", '"task.goal", which sets a part of what "task" sets'),
        (b"task.goal;candidates", "columns are separated by commas"),
        (b"task.goal,", '"", which is no field'),
        (b'"task.goal', "is not CSV"),
        (b"task.\xff", "is not UTF-8"),
    ],
)
def test_a_wrong_header_is_told(header: bytes, expected: str) -> None:
    with pytest.raises(DatasetError, match=expected.replace("(", r"\(")) as caught:
        read(header + b"\nx\n", Format.CSV)
    assert caught.value.line == 1


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (b"A,a", "2: : has 2 cells; the header has 3"),
        (b"A,a,1.,x", "2: : has 4 cells; the header has 3"),
        (b'A,a,"1."x', "2: : is not CSV: "),
        (b'A,a,"1.', "2: : is not CSV: unexpected end of data"),
        (b"A,a,\xff", "2: : is not UTF-8: invalid start byte"),
        (b",a,1.", "2: task: is required"),
        (b"A,,1.", "2: candidates[0].id: is required"),
    ],
)
def test_a_wrong_record_is_told_and_the_others_are_read(record: bytes, expected: str) -> None:
    good = b"B,b,1.\n"
    rows, manifest = read(HEADER + b"\n" + record + b"\n", Format.CSV)
    assert faults(rows)[0].startswith(expected)
    if b'"1.' not in record or b"x" in record:
        rows, manifest = read(HEADER + b"\n" + record + b"\n" + good, Format.CSV)
        assert manifest.row_count == manifest.invalid_row_count == 1
        assert rows[-1].line == 3


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        (b"task.constraints", b"fast", "task.constraints: is not JSON"),
        (b"task.constraints", b"{}", "task.constraints: is not a JSON list but dict"),
        (b"tags", b"[]", "tags: is not a JSON object but list"),
        (b"gold_answer", b"1", "gold_answer: is not a JSON object but int"),
        (b"mechanism", b"X", 'mechanism: is "X"; it must be one of MECHANISM_AGENTS, '),
        (b"options.repeat_index", b"-1", "options.repeat_index: "),
        (b"options.repeat_index", b"1001", "options.repeat_index: is 1001; it must be at most 1000"),
    ],
)
def test_a_wrong_cell_is_told_with_its_column(column: bytes, cell: bytes, expected: str) -> None:
    content = HEADER + b"," + column + b"\nA,a,1.," + cell + b"\n"
    (fault,) = faults(read(content, Format.CSV)[0])
    assert fault.startswith(f"2: {expected}")


def test_a_boolean_is_true_or_false() -> None:
    rows, _ = read(b"reference.id,reduce\na,True\nb,false\nc,perhaps\n", Format.CSV, EvaluateGraphsRequest)
    assert [row.request.reduce for row in rows if isinstance(row, Row)] == [True, False]
    assert faults(rows)[0].startswith("4: reduce: ")


def test_elements_without_a_value_are_left_out() -> None:
    content = b"task.goal,task.constraints.0,task.constraints.1,candidates\n"
    content += b'A,,hot,"[{""id"": ""a"", ""text"": ""1.""}]"\n'
    (row,), _ = read(content, Format.CSV)
    assert isinstance(row, Row)
    assert list(row.request.task.constraints) == ["hot"]


def test_the_rest_of_a_column_is_the_key_of_a_tag() -> None:
    (row,), _ = read(HEADER + b",tags.a.b\nA,a,1.,x\n", Format.CSV)
    assert isinstance(row, Row)
    assert dict(row.request.tags) == {"a.b": "x"}


@pytest.mark.parametrize("content", [b"", b"\n\n", HEADER, HEADER + b"\n"])
def test_there_may_be_no_rows(content: bytes) -> None:
    assert read(content, Format.CSV)[0] == []


def test_a_cell_that_is_too_long_is_told() -> None:
    rows, _ = read(HEADER + b'\nA,a,"' + b"x" * (5 << 20) + b'"\nB,b,1.\n', Format.CSV)
    assert [isinstance(row, InvalidRow) for row in rows] == [True, False]
    assert "field larger than field limit" in faults(rows)[0]


def test_a_record_of_many_lines_is_no_longer_than_a_line_may_be() -> None:
    cell = b'"' + (b"x" * 1023 + b"\n") * (2 << 10) + b'",'
    content = b"task.goal," + b",".join(b"candidates.%d.text" % n for n in range(9)) + b"\n"
    rows, manifest = read(content + cell * 10 + b"\nA,,,,,,,,,\n", Format.CSV)
    assert manifest.row_count == 0
    assert faults(rows)[0] == "2: : is longer than 16 MiB, the longest that a line may be"
