"""Review sheets (``dramaturg.authoring``) that people completed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from dramaturg.authoring import ACCEPTED, EDITED, REJECTED
from dramaturg.cli.platform import fail
from dramaturg.datasets.json_lines import LineError
from dramaturg.datasets.spreadsheet import read_table
from dramaturg.results.quantities import counted

STATUSES = (ACCEPTED, EDITED, REJECTED)
"""The values of the column "status"."""
REQUIRED = ("id", "status")
"""The columns that every sheet has."""
NOT_REVIEWED = "not reviewed"
"""How a row without a status is counted."""


class Review(Protocol):
    """The review of a sheet."""

    @property
    def problems(self) -> Sequence[str]:
        """The problems, each with its row."""


SomeReview = TypeVar("SomeReview", bound=Review)


def reviewed(file: Path, read: Callable[[list[tuple[int, Mapping[str, str]]]], SomeReview]) -> SomeReview:
    """Reads a completed sheet.

    Args:
        file: The sheet.
        read: Makes a review of the sheet's rows, each with its line.

    Raises:
        typer.Exit: 2: the sheet cannot be read, or is not in order.
    """
    try:
        found = read(read_sheet(file))
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    except LineError as error:
        fail(str(error))
    if found.problems:
        fail(f"{file}: {counted(len(found.problems), 'problem')}\n" + "\n".join(found.problems))
    return found


def read_sheet(file: Path) -> list[tuple[int, Mapping[str, str]]]:
    """Reads a sheet, as CSV or as JSON Lines.

    Returns:
        The cells of each row by column, without blanks around them, with the number of the row's line.

    Raises:
        LineError: The file is not a sheet; the message names the line or the column.
        OSError: The file cannot be read.
    """
    rows = read_table(file)
    if not rows:
        raise LineError(file, 0, "has no rows")
    for column in REQUIRED:
        if not any(column in row for _, row in rows):
            raise LineError(file, 0, f"has no column {column!r}: is it such a sheet?")
    return [
        (line, {name: "" if value is None else str(value).strip() for name, value in row.items()})
        for line, row in rows
    ]


def kept_rows(
    rows: Iterable[tuple[int, Mapping[str, str]]], statuses: Counter[str], *, unreviewed: bool = False
) -> Iterator[tuple[int, Mapping[str, str], str]]:
    """The rows that people kept: line, cells and status of those neither rejected nor without a status.

    Args:
        rows: The rows of a sheet, each with the number of its line.
        statuses: Every row is counted in it.
        unreviewed: Whether rows without a status are kept too.
    """
    for line, row in rows:
        status = row.get("status", "").casefold()
        statuses[status or NOT_REVIEWED] += 1
        if status != REJECTED and (status or unreviewed):
            yield line, row, status


def status_problems(row: Mapping[str, str], status: str, edited: Sequence[str]) -> Iterator[str]:
    """What is wrong with a status.

    Args:
        row: The cells.
        status: Their status, in lower case.
        edited: The columns that hold what people wrote instead; one is not empty where the status is edited.
    """
    if status not in STATUSES:
        yield f"status: is {status!r}, none of {', '.join(STATUSES)}"
    if status == EDITED and not any(row.get(name) for name in edited):
        missing = "must" if len(edited) == 1 else "one must"
        yield f"{', '.join(edited)}: {missing} not be empty where the status is edited"
