from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.datasets import Format
from dramaturg.datasets.row_file import SHOWN, RowFile, RowsError, open_rows
from tests.support.datasets import written

GOOD = {"task": {"goal": "Make tea"}, "candidates": [{"id": "a", "text": "1. Boil.\n2. Pour.\n3. Wait."}]}


def row_file(text: bytes, limit: int | None = None) -> RowFile[EvaluateScriptsRequest]:
    return RowFile(io.BytesIO(text), EvaluateScriptsRequest, limit)


def rows(*lines: Any, limit: int | None = None) -> RowFile[EvaluateScriptsRequest]:
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return row_file(b"\n".join(texts), limit)


def problems(*lines: Any) -> list[str]:
    with pytest.raises(RowsError) as caught:
        rows(*lines).check()
    return str(caught.value).split("\n")


def test_rows_are_numbered_by_their_lines_and_blank_lines_are_none() -> None:
    file = rows(GOOD, b"", b"  \r", GOOD, b"")
    assert file.check() == 2
    assert [row.line for row in file] == [1, 4]
    assert [row.request.task.goal for row in file] == ["Make tea", "Make tea"]


def test_a_byte_order_mark_and_windows_line_ends_are_no_matter() -> None:
    line = json.dumps(GOOD).encode()
    file = row_file(b"\xef\xbb\xbf" + line + b"\r\n" + line + b"\r\n")
    assert file.check() == 2


def test_a_separator_inside_a_text_ends_no_line() -> None:
    good = {**GOOD, "tags": {"note": "a\u2028b\u0085c"}}
    file = row_file(json.dumps(good, ensure_ascii=False).encode())
    assert [row.request.tags["note"] for row in file] == ["a\u2028b\u0085c"]


def test_only_the_first_rows_count_where_there_is_a_limit() -> None:
    file = rows(GOOD, b"", GOOD, b"nonsense", limit=2)
    assert file.check() == 2
    assert len(list(file)) == 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"{", "is not JSON"),
        (b"[1]", "is not a JSON object but list"),
        (b'{"task": NaN}', "NaN is no number"),
        (b'"\xff"', "is not UTF-8"),
        (b"[" * 100_000, "is nested too deeply"),
        ({**GOOD, "taks": 1}, "taks: there is no such field; there are task, candidates"),
        (
            {**GOOD, "candidates": [{"id": "a", "script": {"steps": [{"txt": "x"}]}}]},
            "candidates[0].script.steps[0].txt: there is no such field; there are text",
        ),
        ({**GOOD, "task": {"goal": 3}}, "task.goal: "),
        ({**GOOD, "mechanism": "X"}, 'mechanism: is "X"; it must be one of MECHANISM_AGENTS, '),
        ({**GOOD, "task": {"goal": " "}}, "task.goal: "),
        ({**GOOD, "candidates": []}, "candidates: "),
        ({**GOOD, "candidates": [{"text": "x"}]}, "candidates[0].id: "),
    ],
)
def test_a_bad_line_is_named_with_its_field(line: Any, expected: str) -> None:
    (shown,) = problems(GOOD, line)
    assert shown.startswith(f"line 2: {expected}") or (shown.startswith("line 2: ") and expected in shown)


def test_every_bad_line_is_named_up_to_a_number() -> None:
    shown = problems(*[{"x": 1}] * (SHOWN + 2))
    assert len(shown) == SHOWN + 1
    assert shown[0].startswith("line 1: x")
    assert shown[-1] == "and 2 more"


def test_standard_input_is_kept_so_that_it_can_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(json.dumps(GOOD).encode())

    monkeypatch.setattr("sys.stdin", Stdin())
    with open_rows("-", EvaluateScriptsRequest) as file:
        assert file.check() == 1
        assert len(list(file)) == 1


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), open_rows(str(tmp_path / "none.jsonl"), EvaluateScriptsRequest):
        pass


@given(st.binary(max_size=200))
def test_no_line_breaks_the_reader(line: bytes) -> None:
    file = row_file(line)
    try:
        count = file.check()
    except RowsError as error:
        assert error.count >= 1  # noqa: PT017
    else:
        assert len(list(file)) == count


@pytest.mark.parametrize("form", Format)
@pytest.mark.parametrize("named", [False, True])
def test_files_of_every_format_are_read(form: Format, tmp_path: Path, *, named: bool) -> None:
    file = tmp_path / (f"rows.{form}" if named else "rows")
    file.write_bytes(written([ParseDict(GOOD, EvaluateScriptsRequest())] * 3, form))
    with open_rows(str(file), EvaluateScriptsRequest, format=None if named else form) as read:
        assert read.check() == 3
        assert [row.request.task.goal for row in read] == ["Make tea"] * 3


def test_addresses_are_fetched_once_and_read_twice() -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.pipe("/rows-test/rows.jsonl", json.dumps(GOOD).encode())
    with open_rows("memory://rows-test/rows.jsonl", EvaluateScriptsRequest) as read:
        memory.rm("/rows-test/rows.jsonl")
        assert read.check() == len(list(read)) == 1


def test_what_is_wrong_with_a_file_as_a_whole_is_told(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("task.gaol\nMake tea\n")
    (tmp_path / "rows.parquet").write_text("no Parquet")
    for name, expected in (
        ("rows.csv", "line 1: has the column"),
        ("rows.parquet", "cannot be read as Parquet"),
    ):
        with (
            open_rows(str(tmp_path / name), EvaluateScriptsRequest) as read,
            pytest.raises(RowsError, match=f"^{expected}"),
        ):
            read.check()


def test_a_file_that_was_changed_after_its_check_is_told(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(GOOD))
    with open_rows(str(file), EvaluateScriptsRequest) as read:
        read.check()
        file.write_text("{")
        with pytest.raises(RowsError, match="line 1: is not JSON"):
            list(read)
