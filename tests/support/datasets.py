"""Writes requests as JSON Lines, CSV and Parquet, and reads datasets whole."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from pyarrow import parquet

from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.datasets import DatasetReader, Format, InvalidRow, Manifest, Row


def values_of(requests: Sequence[Message]) -> list[dict[str, Any]]:
    """Requests as protobuf's JSON, in the contract's spelling."""
    return [MessageToDict(request, preserving_proto_field_name=True) for request in requests]


def to_json_lines(requests: Sequence[Message]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values_of(requests))


def to_csv(requests: Sequence[Message], whole: frozenset[str] = frozenset()) -> bytes:
    """One column for each value there is, save the fields that are whole: those are JSON in one cell."""
    rows = [_cells(value, whole) for value in values_of(requests)]
    header = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, header)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def to_parquet(requests: Sequence[Message], **options: Any) -> bytes:
    values = values_of(requests)
    names = dict.fromkeys(name for value in values for name in value)
    table = pa.table({name: [value.get(name) for value in values] for name in names})
    file = io.BytesIO()
    parquet.write_table(table, file, **options)
    return file.getvalue()


def written(requests: Sequence[Message], form: Format, *, compressed: bool = False) -> bytes:
    """Requests in a format."""
    write = {Format.JSONL: to_json_lines, Format.CSV: to_csv, Format.PARQUET: to_parquet}[form]
    content = write(requests)
    return gzip.compress(content) if compressed else content


def read(
    content: bytes | BinaryIO,
    form: Format = Format.JSONL,
    kind: type[Message] = EvaluateScriptsRequest,
    **options: Any,
) -> tuple[list[Row[Any] | InvalidRow], Manifest]:
    """All rows of a dataset and its manifest."""
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    reader: DatasetReader[Any] = DatasetReader(file, kind, form, **options)
    return list(reader), reader.manifest


def faults(rows: Sequence[Row[Any] | InvalidRow]) -> list[str]:
    """What is wrong with rows, one text a violation."""
    return [
        f"{row.line}: {field}: {description}"
        for row in rows
        if isinstance(row, InvalidRow)
        for field, description in row.violations
    ]


def _cells(value: Mapping[str, Any], whole: frozenset[str]) -> dict[str, str]:
    cells: dict[str, str] = {}
    for name, part in value.items():
        if name in whole:
            cells[name] = json.dumps(part)
        else:
            cells.update(_flat(name, part))
    return cells


def _flat(path: str, value: Any) -> dict[str, str]:
    parts: Any = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    else:
        return {path: json.dumps(value) if isinstance(value, bool | float | int) else value}
    cells: dict[str, str] = {}
    for name, part in parts:
        cells.update(_flat(f"{path}.{name}", part))
    return cells
