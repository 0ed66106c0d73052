"""Reads the first sheet of a workbook (XLSX, ECMA-376), with the standard library alone."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from typing import BinaryIO
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from dramaturg.datasets.errors import DatasetError

_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}"
_OFFICE = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_STRICT = "http://purl.oclc.org/ooxml/"
_COLUMN = re.compile(r"[A-Z]+")
_MAX_COLUMNS, _MAX_ROWS = 16_384, 1_048_576
"""Of a sheet, by the format."""


def read_workbook(file: BinaryIO) -> Iterator[list[str]]:
    """The rows of the first sheet as texts, the empty ones too, up to the last one that has cells.

    A formula is the value that was computed last. A date is its number, since only its style says more.

    Args:
        file: The file, open in binary, seekable.

    Raises:
        DatasetError: It is no workbook.
    """
    try:
        with zipfile.ZipFile(file) as book:
            shared = _shared_texts(book)
            with book.open(_first_sheet(book)) as sheet:
                number = 0
                for _, row in ElementTree.iterparse(sheet):  # noqa: S314 - expat limits expansion
                    if row.tag == f"{_SHEET}row":
                        number += 1
                        place = _row_number(row, number)
                        yield from ([] for _ in range(number, place))
                        number = place
                        yield _cells(row, shared)
                        row.clear()
    except (zipfile.BadZipFile, ElementTree.ParseError, KeyError, IndexError, ValueError) as error:
        raise DatasetError(f"cannot be read as XLSX: {error}") from error


def _first_sheet(book: zipfile.ZipFile) -> str:
    """The name of the first sheet's part."""
    sheet = _part(book, "xl/workbook.xml").find(f"{_SHEET}sheets/{_SHEET}sheet")
    if sheet is None:
        raise ValueError("it has no sheet")
    wanted = sheet.get(f"{_OFFICE}id")
    for relation in _part(book, "xl/_rels/workbook.xml.rels").iter(f"{_RELATIONS}Relationship"):
        if relation.get("Id") == wanted:
            target = relation.get("Target", "")
            return target[1:] if target.startswith("/") else f"xl/{target}"
    raise ValueError("its first sheet is missing")


def _shared_texts(book: zipfile.ZipFile) -> list[str]:
    """The texts that cells refer to by their position."""
    if "xl/sharedStrings.xml" not in book.namelist():
        return []
    return [_text(item) for item in _part(book, "xl/sharedStrings.xml").iter(f"{_SHEET}si")]


def _part(book: zipfile.ZipFile, name: str) -> Element:
    data = book.read(name)
    if _STRICT.encode() in data:
        raise ValueError("it is a Strict Open XML workbook: save it as an ordinary one")
    return ElementTree.fromstring(data)  # noqa: S314 - expat limits expansion


def _row_number(row: Element, least: int) -> int:
    """The number of a row, from 1."""
    number = int(row.get("r") or least)
    if not least <= number <= _MAX_ROWS:
        raise ValueError(f"it has a row {number} after the row {least - 1}")
    return number


def _cells(row: Element, shared: list[str]) -> list[str]:
    cells: list[str] = []
    for cell in row.iter(f"{_SHEET}c"):
        column = _COLUMN.match(cell.get("r") or "")
        position = _position(column.group()) if column else len(cells)
        cells += [""] * (position - len(cells))
        cells.append(_value(cell, shared))
    return cells


def _position(column: str) -> int:
    """The index, from 0, of a column such as "AB"."""
    number = 0
    for letter in column:
        number = number * 26 + ord(letter) - ord("A") + 1
    if number > _MAX_COLUMNS:
        raise ValueError(f"it has a column {column}")
    return number - 1


def _value(cell: Element, shared: list[str]) -> str:
    kind = cell.get("t")
    if kind == "inlineStr":
        return _text(cell)
    value = cell.findtext(f"{_SHEET}v") or ""
    if kind == "s":
        return shared[int(value)]
    if kind == "b":
        return "true" if value == "1" else "false"
    return value


def _text(item: Element) -> str:
    """The text of an item, without the phonetic reading of East Asian texts."""
    runs = [*item.findall(f"{_SHEET}t"), *item.findall(f"{_SHEET}r/{_SHEET}t")]
    runs += item.findall(f"{_SHEET}is/{_SHEET}t") + item.findall(f"{_SHEET}is/{_SHEET}r/{_SHEET}t")
    return "".join(run.text or "" for run in runs)
