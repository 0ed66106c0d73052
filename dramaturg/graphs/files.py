"""Reads files of script graphs: a JSON array, JSON Lines, or one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dramaturg.datasets.json_lines import LineError, json_document, json_values


class FileError(ValueError):
    """The file is unreadable or invalid; the message names the file and the record."""


@dataclass(frozen=True)
class Row:
    """One record of a file.

    Attributes:
        id: The record's ``id``; without one, its position in the file, from 1, which is how proScript's
            published predictions number scripts.
        record: The record.
    """

    id: str
    record: Mapping[str, Any]

    def tag(self, name: str) -> str | None:
        """The value of a member as text, ``None`` without a single value. Dots select nested members."""
        value: object = self.record
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return str(value) if isinstance(value, (str, int, float)) else None


def read_rows(path: Path) -> list[Row]:
    """Reads a file whose name ends in ".json" or ".jsonl".

    Raises:
        FileError: The file is unreadable, an element is not an object, or an id repeats.
    """
    rows: dict[str, Row] = {}
    for position, record in enumerate(_records(path), start=1):
        if not isinstance(record, Mapping):
            raise FileError(f"{path}: record {position} is not a JSON object")
        row = Row(str(record.get("id", position)), record)
        if row.id in rows:
            raise FileError(f"{path}: record {position} repeats the id {row.id!r}")
        rows[row.id] = row
    return list(rows.values())


def read_text(path: Path) -> str:
    """Reads a text file in UTF-8.

    Raises:
        FileError: The file is unreadable.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: {error}") from error


def _records(path: Path) -> list[Any]:
    try:
        if path.suffix == ".jsonl":
            return [value for _, value in json_values(path)]
        value = json_document(path)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    except LineError as error:
        raise FileError(str(error)) from error
    return value if isinstance(value, list) else [value]
