from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from dramaturg.api.evaluation.v1.texts_pb2 import EvaluateTextsRequest
from dramaturg.datasets import DatasetError
from dramaturg.datasets.row_file import RowsError, open_rows
from dramaturg.datasets.tables import table_rows

ROWS = [{"task": "Greet, please.", "text": "Hello\nthere"}, {"task": "Part", "text": ""}]


def workbook(cells: str, shared: str = "") -> bytes:
    """A workbook whose first sheet has these rows."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    parts = {
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{office}"><sheets><sheet name="S" r:id="x"/></sheets>'
        "</workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}"><Relationship Id="x" '
        'Target="worksheets/sheet7.xml"/></Relationships>',
        "xl/worksheets/sheet7.xml": f"<worksheet {main}><sheetData>{cells}</sheetData></worksheet>",
        "xl/sharedStrings.xml": f"<sst {main}>{shared}</sst>",
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as book:
        for name, content in parts.items():
            book.writestr(name, content)
    return file.getvalue()


SHARED = "<si><t>task</t></si><si><t>text</t></si><si><r><t>Hello\n</t></r><r><t>there</t></r></si>"
CELLS = (
    '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row>'
    '<row r="2"><c r="A2" t="inlineStr"><is><t>Greet, please.</t></is></c><c r="B2" t="s"><v>2</v></c></row>'
    '<row r="4"><c r="A4" t="str"><f>A1</f><v>Part</v></c></row>'
)


def write(folder: Path, end: str, rows: Sequence[dict[str, Any]]) -> Path:
    file = folder / f"rows{end}"
    lines = [f"{json.dumps(row)}\n" for row in rows]
    texts = {
        ".json": json.dumps(rows, indent=1),
        ".jsonl": "".join(lines),
        ".csv": 'task,text\n"Greet, please.","Hello\nthere"\nPart,\n',
        ".tsv": '\ufefftask\ttext\nGreet, please.\t"Hello\nthere"\nPart\t\n',
    }
    if end == ".parquet":
        parquet.write_table(pa.Table.from_pylist(list(rows)), file)
    elif end == ".xlsx":
        file.write_bytes(workbook(CELLS, SHARED))
    else:
        file.write_text(texts[end], encoding="utf-8")
    return file


@pytest.mark.parametrize("end", [".json", ".jsonl", ".csv", ".tsv", ".parquet", ".xlsx"])
def test_a_table_of_any_format_has_the_same_rows(end: str, tmp_path: Path) -> None:
    assert list(table_rows(str(write(tmp_path, end, ROWS)))) == ROWS


def test_cells_of_a_workbook_are_texts(tmp_path: Path) -> None:
    file = tmp_path / "ROWS.XLSX"
    header = '<row><c t="inlineStr"><is><t>a</t></is></c><c r="AB1" t="inlineStr"><is><t>b</t></is></c></row>'
    file.write_bytes(workbook(f'{header}<row><c t="b"><v>1</v></c><c r="AB2"><v>4.5</v></c></row>'))
    (row,) = table_rows(str(file))
    assert (row["a"], row["b"]) == ("true", "4.5")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", b"PK no zip", "cannot be read as XLSX"),
        ("a.xlsx", workbook('<row><c t="s"><v>9</v></c></row>'), "cannot be read as XLSX"),
        ("a.xlsx", workbook('<row><c r="ZZZZ1"><v>9</v></c></row>'), "it has a column ZZZZ"),
        ("a.xlsx", workbook('<row r="9999999999"/>'), "it has a row 9999999999 after the row 0"),
        ("a.xlsx", workbook('<row r="3"/><row r="2"/>'), "it has a row 2 after the row 3"),
        ("a.json", b'[{"a": 1},', "is not JSON"),
        ("a.json", b"[1]", "line 1: is not a JSON object but int"),
        ("a.tsv", b"a\tb\n\xff\t1\n", "is not UTF-8"),
        ("a.jsonl", b"no\n", "line 1: is not JSON"),
    ],
)
def test_what_is_no_table_is_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        list(table_rows(str(tmp_path / name)))


REQUEST = {
    "task": {"goal": "Greet."},
    "texts": [{"id": "a", "text": "Hello"}],
    "criteria": [{"id": "kind", "passes": "It is."}],
}


def test_rows_of_a_json_array_are_requests(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps([REQUEST, REQUEST], indent=2), encoding="utf-8")
    with open_rows(str(tmp_path / "rows.json"), EvaluateTextsRequest) as rows:
        assert rows.check() == 2
    (tmp_path / "rows.json").write_text(json.dumps([REQUEST, {"task": 1}]), encoding="utf-8")
    with (
        open_rows(str(tmp_path / "rows.json"), EvaluateTextsRequest) as rows,
        pytest.raises(RowsError, match="line 2: task"),
    ):
        rows.check()


def test_columns_of_tsv_are_the_paths_of_fields(tmp_path: Path) -> None:
    head = "task.goal\ttexts.0.id\ttexts.0.text\tcriteria.0.id\tcriteria.0.passes\n"
    (tmp_path / "rows.tsv").write_text(f"{head}Greet.\ta\tHello\tkind\tIt is.\n", encoding="utf-8")
    with open_rows(str(tmp_path / "rows.tsv"), EvaluateTextsRequest) as rows:
        (row,) = rows
    assert row.request.texts[0].text == "Hello"
