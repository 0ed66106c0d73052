"""Tables as people keep them: JSON Lines, JSON, CSV, TSV, Parquet, workbooks, logs of Inspect.

JSON, TSV, XLSX and logs are datasets once they are written as JSON Lines or CSV (``as_dataset``).

A workbook (XLSX, ECMA-376) is read with the standard library alone.
"""

from __future__ import annotations

import csv
import io
import json
import re
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, cast
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from dramaturg.datasets.json_lines import MAX_VALUE_BYTES, read_json_lines
from dramaturg.datasets.reader import unpacked
from dramaturg.datasets.requests import parse_json
from dramaturg.datasets.source import (
    BYTE_ORDER_MARK,
    STANDARD_INPUT,
    DatasetError,
    Format,
    format_of,
    missing,
    open_source,
)
from dramaturg.datasets.spreadsheet import header_problem

_ZSTANDARD = 93
"""The method of compression that zipfile does not have before Python 3.14 (APPNOTE.TXT, 4.4.5)."""
_LOCAL_HEADER = struct.Struct("<26xHH")
"""The lengths of the name and of the extra field, which end the header before the bytes of a member."""
_USED = ("id", "epoch", "input", "target", "messages", "output", "metadata", "attachments")


def read_eval_log(file: BinaryIO) -> Iterator[Mapping[str, Any]]:
    """The samples of an archive, each as a log of its own.

    Args:
        file: The file, open in binary, seekable.

    Raises:
        DatasetError: It is no such archive, has a sample of more than 64 MiB, or needs a package that is not
            installed.
    """
    try:
        with zipfile.ZipFile(file) as log:
            names = log.namelist()
            head = parse_json(
                _member(log, file, "header.json" if "header.json" in names else "_journal/start.json")
            )
            for name in names:
                if name.startswith("samples/") and name.endswith(".json"):
                    yield from samples_of({**head, "samples": [parse_json(_member(log, file, name))]})
    except (zipfile.BadZipFile, KeyError, ValueError, struct.error) as error:
        raise DatasetError(f"cannot be read as a log of Inspect: {error}") from error


def samples_of(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A log for each sample of a log, with the fields that are used; any other document as it is."""
    samples, head = document.get("samples"), document.get("eval")
    if not isinstance(samples, list) or not isinstance(head, dict):
        yield document
        return
    for sample in samples:
        kept = (
            {name: sample[name] for name in _USED if name in sample} if isinstance(sample, dict) else sample
        )
        yield {"eval": {name: head.get(name) for name in ("task", "model")}, "samples": [kept]}


def _member(log: zipfile.ZipFile, file: BinaryIO, name: str) -> bytes:
    info = log.getinfo(name)
    if info.file_size > MAX_VALUE_BYTES:
        raise ValueError(f"{name} has more than {MAX_VALUE_BYTES >> 20} MiB")
    if info.compress_type != _ZSTANDARD:
        return log.read(info)
    try:
        from pyarrow import ArrowException, Codec
    except ImportError as error:
        raise missing("a log of Inspect", "pyarrow") from error
    file.seek(info.header_offset)
    file.seek(sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))), 1)
    try:
        packed = file.read(info.compress_size)
        data: bytes = Codec("zstd").decompress(packed, decompressed_size=info.file_size, asbytes=True)
    except (ArrowException, OSError) as error:
        raise ValueError(f"{name}: {error}") from error
    if zlib.crc32(data) != info.CRC:
        raise ValueError(f"{name} is damaged")
    return data


_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}"
_OFFICE = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_STRICT = "http://purl.oclc.org/ooxml/"
_COLUMN = re.compile(r"[A-Z]+")
_MAX_COLUMNS, _MAX_ROWS = 16_384, 1_048_576
"""Of a sheet, by the format."""
_PEEKED_BYTES = 1 << 12


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


@contextmanager
def as_dataset(
    file: BinaryIO,
    name: str,
    form: Format | None = None,
) -> Iterator[tuple[BinaryIO, Format]]:
    """A file as a dataset, and how that is written.

    Args:
        file: The file, open in binary, seekable, at its start.
        name: Its name, whose end tells how it is written. Else it is JSON or JSON Lines.
        form: How it is written. None: as its name tells.

    Raises:
        DatasetError: It is not what its name tells.
    """
    known = form or format_of(name)
    lowered = name.casefold()
    if known is not None:
        yield file, known
    elif lowered.endswith(".xlsx"):
        with _as_csv(read_workbook(file)) as rows:
            yield rows, Format.CSV
    elif lowered.endswith(".tsv"):
        with _as_csv(_tab_separated(file)) as rows:
            yield rows, Format.CSV
    elif lowered.endswith(".eval"):
        with _as_json_lines(read_eval_log(file)) as rows:
            yield rows, Format.JSONL
    elif _is_document(file):
        with _as_json_lines(_documents(file)) as rows:
            yield rows, Format.JSONL
    else:
        yield file, Format.JSONL


def table_rows(source: str, form: Format | None = None) -> Iterator[dict[Any, Any]]:
    """The rows of a file by column. Cells of CSV, TSV and XLSX are texts; under None are cells too many.

    Args:
        source: A path or an address that ``open_source`` opens; "-" is standard input, which is left as it
            was if it can be read again.
        form: As that of ``as_dataset``.

    Raises:
        DatasetError: The file is no table.
        OSError: The file cannot be read.
    """
    if source == STANDARD_INPUT:
        stdin = cast("BinaryIO", sys.stdin.buffer)
        start = stdin.tell()
        try:
            with as_dataset(stdin, source, form) as (rows, written):
                yield from _read(rows, written)
        finally:
            stdin.seek(start)
        return
    with open_source(source, seekable=True) as file, as_dataset(file, source, form) as (rows, written):
        yield from _read(rows, written)


def _read(file: BinaryIO, form: Format) -> Iterator[dict[Any, Any]]:
    if form is Format.PARQUET:
        yield from _read_parquet(file)
    elif form is Format.CSV:
        yield from _read_csv(file)
    else:
        for line, value, fault in read_json_lines(unpacked(file)):
            if fault is not None:
                raise DatasetError(f"line {line}: {fault.description}", line)
            if not isinstance(value, dict):
                raise DatasetError(f"line {line}: is not a JSON object but {type(value).__name__}", line)
            yield value


def _read_csv(file: BinaryIO) -> Iterator[dict[Any, Any]]:
    text = io.TextIOWrapper(unpacked(file), encoding="utf-8-sig", newline="")
    try:
        rows = csv.DictReader(text, strict=True)
        if problem := header_problem(rows.fieldnames or ()):
            raise DatasetError(problem, 1)
        yield from rows
    except UnicodeDecodeError as error:
        raise DatasetError(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    except csv.Error as error:
        raise DatasetError(f"is not CSV: {error}") from error
    finally:
        text.detach()


def _read_parquet(file: BinaryIO) -> Iterator[dict[Any, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise missing("Parquet", "pyarrow") from error
    try:
        for batch in parquet.ParquetFile(file).iter_batches(256):
            yield from batch.to_pylist()
    except (ArrowException, OSError) as error:
        raise DatasetError(f"cannot be read as Parquet: {error}") from error


def _is_document(file: BinaryIO) -> bool:
    """Whether a file is one JSON array, or one object of several lines."""
    start = file.tell()
    text = file.read(_PEEKED_BYTES).removeprefix(BYTE_ORDER_MARK).lstrip()
    file.seek(start)
    first, _, more = text.partition(b"\n")
    return text.startswith(b"[") or (
        text.startswith(b"{") and bool(more) and not first.rstrip().endswith(b"}")
    )


def _documents(file: BinaryIO) -> Iterator[Any]:
    """The elements of an array, or the samples of an object that is a log."""
    try:
        value = parse_json(file.read().removeprefix(BYTE_ORDER_MARK))
    except ValueError as error:
        raise DatasetError(str(error)) from error
    yield from samples_of(value) if isinstance(value, Mapping) else value


@contextmanager
def _as_json_lines(values: Iterable[Any]) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as kept:
        kept.writelines(json.dumps(value).encode() + b"\n" for value in values)
        kept.seek(0)
        yield cast("BinaryIO", kept)


@contextmanager
def _as_csv(rows: Iterable[list[str]]) -> Iterator[BinaryIO]:
    """Rows as CSV. Those of a sheet may lack empty cells at their end."""
    with tempfile.TemporaryFile() as kept:
        text = io.TextIOWrapper(kept, encoding="utf-8", newline="")
        writer = csv.writer(text)
        width = 0
        for cells in rows:
            width = width or len(cells)
            writer.writerow([*cells, *[""] * (width - len(cells))] if any(cells) else [])
        text.flush()
        text.detach()
        kept.seek(0)
        yield cast("BinaryIO", kept)


def _tab_separated(file: BinaryIO) -> Iterator[list[str]]:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        yield from csv.reader(text, delimiter="\t", strict=True)
    except UnicodeDecodeError as error:
        raise DatasetError(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    except csv.Error as error:
        raise DatasetError(f"is not TSV: {error}") from error
    finally:
        text.detach()
