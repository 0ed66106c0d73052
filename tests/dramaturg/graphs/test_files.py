from __future__ import annotations

from pathlib import Path

import pytest

from dramaturg.graphs.files import FileError, Row, read_rows


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.json", '[{"id": "a"}, {"edges": []}]'),
        ("rows.jsonl", '{"id": "a"}\n\n{"edges": []}\n'),
    ],
)
def test_a_record_without_an_id_has_its_position(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert [row.id for row in read_rows(file)] == ["a", "2"]


def test_one_record_is_a_file_of_one(tmp_path: Path) -> None:
    file = tmp_path / "row.json"
    file.write_text('{"id": 7, "scenario": "s"}')
    assert read_rows(file) == [Row("7", {"id": 7, "scenario": "s"})]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting"),
        ("[1]", "record 1 is not a JSON object"),
        ('[{"id": 1}, {"id": "1"}]', "record 2 repeats the id '1'"),
        ("[" * 100_000, "rows.json"),
    ],
)
def test_an_invalid_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(text)
    with pytest.raises(FileError, match=message):
        read_rows(file)
    with pytest.raises(FileError, match="missing"):
        read_rows(tmp_path / "missing.json")


def test_tags_are_single_values_of_nested_members() -> None:
    row = Row("1", {"meta": {"domain": "food", "size": 3}, "list": [1]})
    assert (row.tag("meta.domain"), row.tag("meta.size")) == ("food", "3")
    assert (row.tag("meta"), row.tag("list"), row.tag("meta.domain.x")) == (None, None, None)
