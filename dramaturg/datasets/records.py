"""What the reader of a format gives for each row, before it is a request."""

from __future__ import annotations

from typing import Any, NamedTuple

from dramaturg.service.errors import Violation


class Record(NamedTuple):
    """One row."""

    line: int
    """The number of the line on which it begins, of Parquet that of the row; from 1."""
    value: Any
    """Its value in the shape of protobuf's JSON. Nothing where there is a fault."""
    fault: Violation | None = None
    """Why it has no value."""
