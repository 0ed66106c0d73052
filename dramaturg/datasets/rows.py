"""The rows of a dataset: what the reader of a format gives for each, and the request that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from google.protobuf.message import Message

from dramaturg.service.errors import Violation

Request = TypeVar("Request", bound=Message)

_SUBJECTS = ("task", "decision", "script", "reference")


class Record(NamedTuple):
    """One row."""

    line: int
    """The number of the line on which it begins, of Parquet that of the row; from 1."""
    value: Any
    """Its value in the shape of protobuf's JSON. Nothing where there is a fault."""
    fault: Violation | None = None
    """Why it has no value."""


class Row(NamedTuple, Generic[Request]):
    """One request of a dataset."""

    line: int
    """The number of the line on which it begins, of Parquet that of the row; from 1."""
    request: Request
    """The request."""


class InvalidRow(NamedTuple):
    """A row that is no valid request."""

    line: int
    """As a row's."""
    violations: Sequence[Violation]
    """The violations, at least one; one without a field is about the row as a whole."""


def sample_id(request: Any) -> str:
    """The id of the subject of a request, such as its task, or its own. May be empty."""
    fields = request.DESCRIPTOR.fields_by_name
    # A request may have a field of the name that is no message, such as the task of a graph's evaluation.
    parts = (getattr(request, name) for name in _SUBJECTS if name in fields and fields[name].message_type)
    found: str = next((part.id for part in parts), "") or getattr(request, "id", "")
    return found
