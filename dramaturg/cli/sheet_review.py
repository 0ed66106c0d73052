"""Reads a sheet that people filled in, and refuses one that is not in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from dramaturg.authoring.sheets import read_sheet
from dramaturg.cli.cells import counted
from dramaturg.cli.platform import fail
from dramaturg.datasets.json_lines import LineError


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
