"""Reads files of script graphs: a JSON array, JSON Lines, or one record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class FileError(ValueError):
    """A file that cannot be used; the message names the place and what is wrong there."""


@dataclass(frozen=True)
class Row:
    """One record of a file.

    Attributes:
        id: The record's ``id``; where it has none, its place in the file, from 1. The predictions that are
            published for proScript number its scripts so.
        record: The record.
    """

    id: str
    record: Mapping[str, Any]

    def tag(self, name: str) -> str | None:
        """The single value of a member (dots lead to members of members); ``None`` where there is none."""
        value: object = self.record
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return str(value) if isinstance(value, (str, int, float)) else None


def read_rows(path: Path) -> list[Row]:
    """Reads a file whose name ends in ".json" or ".jsonl".

    Raises:
        FileError: It cannot be read, holds something else than records, or an id twice.
    """
    text = read_text(path)
    rows: dict[str, Row] = {}
    for place, record in enumerate(_records(path, text), start=1):
        if not isinstance(record, Mapping):
            raise FileError(f"{path}: record {place} is no JSON object")
        row = Row(str(record.get("id", place)), record)
        if row.id in rows:
            raise FileError(f"{path}: record {place} has the id {row.id!r} of an earlier one")
        rows[row.id] = row
    return list(rows.values())


def read_text(path: Path) -> str:
    """Reads a text file in UTF-8.

    Raises:
        FileError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: {error}") from error


def _records(path: Path, text: str) -> list[Any]:
    try:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: {error}") from error
    return value if isinstance(value, list) else [value]
