"""Tables for spreadsheets: no cell is a formula, and what was written is read back equal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.datasets.json_lines import LineError
from dramaturg.datasets.spreadsheet import csv_record, escape_cell, read_table, unescape_cell, write_table

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
TEXTS = st.text(st.sampled_from("=+-@\t\r\n'＝ a,\"1;\u2028"), max_size=6) | st.text(
    st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20
)


@given(TEXTS)
def test_no_cell_is_a_formula_and_each_is_read_back_equal(text: str) -> None:
    assert not escape_cell(text).startswith(FORMULA)
    assert unescape_cell(escape_cell(text)) == text


@pytest.mark.parametrize("text", ["a = b", "it's", "'quoted'", "1-2", " =1", "", "'"])
def test_other_cells_are_written_as_they_are(text: str) -> None:
    assert escape_cell(text) == text


def test_numbers_are_written_as_numbers() -> None:
    assert csv_record([-0.5, None, 3, "-0.5"]) == "-0.5,,3,'-0.5\r\n"


@given(
    st.lists(TEXTS, min_size=1, max_size=4, unique=True).flatmap(
        lambda columns: st.tuples(
            st.just(columns), st.lists(st.fixed_dictionaries(dict.fromkeys(columns, TEXTS)), max_size=4)
        )
    )
)
def test_a_table_is_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory, table: tuple[list[str], list[dict[str, str]]]
) -> None:
    columns, rows = table
    # The first character of the file tells JSON Lines from CSV.
    columns = ["id", *(name for name in columns if name != "id")]
    rows = [{"id": "", **row} for row in rows]
    file = tmp_path_factory.mktemp("tables") / "sheet.csv"
    write_table(file, columns, rows)
    assert [row for _, row in read_table(file)] == rows


def test_json_lines_are_read_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "sheet.jsonl"
    file.write_text(json.dumps({"goal": "'=1", "n": 2}) + "\n", encoding="utf-8")
    assert read_table(file) == [(1, {"goal": "'=1", "n": 2})]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a,b\n1,2\n1\n", "line 3: has 1 cells; the header has 2"),
        ("{", "line 1: is not JSON"),
        ("a,b,a\n1,2,3\n", "line 1: has the column a twice"),
        ("a;b\n1;2\n", "line 1: has one column, a;b: columns are separated by commas"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "sheet.csv"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(LineError, match=f"sheet.csv: {problem}"):
        read_table(file)
