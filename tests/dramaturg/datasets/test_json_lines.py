from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dramaturg.datasets.json_lines import (
    LineError,
    json_array_or_lines,
    json_document,
    json_objects,
    json_values,
)


def write(folder: Path, content: str | bytes) -> Path:
    file = folder / "rows.jsonl"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def test_values_come_with_the_numbers_of_their_lines(tmp_path: Path) -> None:
    # A line separator inside a string ends no line.
    rows: list[Any] = [{"a": "1\u2028\u0085"}, 2, [3]]
    text = "\ufeff" + "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\r\n"
    assert list(json_values(write(tmp_path, text))) == [(1, rows[0]), (3, rows[1]), (5, rows[2])]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{}\n{", "line 2: is not JSON"),
        ('{"a":\n', "line 1: is not JSON: Expecting value at character 6"),
        ('{"a": 1 "b"}\n', "line 1: is not JSON: Expecting ',' delimiter at character 9"),
        ("{}\n\n[]", "line 3: is not a JSON object but list"),
        ('{"a": NaN}', "line 1: is not JSON: NaN is no number"),
        (b"{}\n\xff", "line 2: is not UTF-8"),
        ("[" * 100_000, "line 1: is nested too deeply"),
    ],
)
def test_an_error_names_the_file_the_line_and_the_problem(
    tmp_path: Path, content: str | bytes, problem: str
) -> None:
    file = write(tmp_path, content)
    with pytest.raises(LineError) as caught:
        list(json_objects(file))
    assert str(caught.value).startswith(f"{file}: {problem}")
    assert f"line {caught.value.line}: {caught.value.problem}".startswith(problem)


@pytest.mark.parametrize("content", ['[{"a": 1}, 2]', ' \ufeff[{"a": 1}, 2]'.strip(), '{"a": 1}\n2\n'])
def test_an_array_and_lines_are_read_alike(tmp_path: Path, content: str) -> None:
    assert json_array_or_lines(write(tmp_path, content)) == [(1, {"a": 1}), (2, 2)]


def test_a_document_that_is_not_json_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, "[1,")
    with pytest.raises(LineError, match=r"rows\.jsonl: is not JSON"):
        json_document(file)
