"""Reads JSON Lines: one request a line in protobuf's JSON. Blank lines are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from dramaturg.datasets.lines import Lines, LongLineError
from dramaturg.datasets.records import Record
from dramaturg.datasets.requests import parse_json
from dramaturg.service.errors import Violation


def read_json_lines(file: BinaryIO) -> Iterator[Record]:
    """The rows of a file that is open in binary."""
    lines = Lines(file)
    while True:
        try:
            text = next(lines, None)
            if text is None:
                return
            if text.strip():
                yield Record(lines.number, parse_json(text))
        except (LongLineError, ValueError) as error:
            yield Record(lines.number, None, Violation("", str(error)))
