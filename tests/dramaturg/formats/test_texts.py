from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dramaturg.formats.texts import TableError, convert, read_table

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "texts" / "answers.csv"


def test_rows_of_a_task_become_one_sample() -> None:
    conversion = convert(read_table(EXAMPLE))
    assert not conversion.skipped
    assert [request.task.id for request in conversion.requests] == [
        "late-parcel",
        "broken-lamp",
        "late-refund",
    ]
    first, *_, last = conversion.requests
    assert [(one.id, one.model) for one in first.texts] == [("alpha", "alpha"), ("beta", "beta")]
    assert first.task.topic == "delivery"
    assert last.texts[1].text == ""  # an empty answer is a result, too


def test_other_columns_are_tags_and_texts_of_one_model_are_numbered() -> None:
    rows = [
        {"prompt": "Q", "text": "A", "model": "m", "level": "easy", "length": 3, "reference": "R"},
        {"prompt": "Q", "text": "B", "model": "m"},
        {"prompt": "Q", "text": "C"},
    ]
    (request,) = convert(rows).requests
    assert dict(request.tags) == {"level": "easy", "length": "3"}
    assert [one.id for one in request.texts] == ["m", "m (2)", "text"]
    assert request.reference == "R"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "A"}, "task: is missing"),
        ({"task": "Q"}, "text: is missing"),
        ({"task": "Q", "text": 5}, "text: is missing"),
        ({"task": ["Q"], "text": "A"}, "task: is no text"),
        ({"task": "Q", "text": "x" * 200_001}, "texts[0].text"),
        ({"task": "Q", "text": "A", None: ["more"]}, "more cells"),
    ],
)
def test_an_invalid_row_is_skipped_with_its_number(row: Any, reason: str) -> None:
    conversion = convert([{"task": "P", "text": "A"}, row])
    assert len(conversion.requests) == 1
    (skipped,) = conversion.skipped
    assert skipped.row == 2
    assert reason in skipped.reason


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"\xff", b'text\n"a'])
def test_a_file_that_is_no_table_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    file.write_bytes(content)
    with pytest.raises(TableError):
        read_table(file)
