"""The sheet on which people accept, edit and label scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dramaturg.cli import sheets
from dramaturg.cli.sheets import read_sheet

__all__ = ["ANNOTATOR", "COLUMNS", "read_sheet", "write_sheet"]

ANNOTATOR = "annotator_"
"""What the columns of annotators begin with; there may be any number of them."""
COLUMNS = (
    "id",
    "format",
    "goal",
    "overall_goal",
    "option_1",
    "option_2",
    "target",
    "base_scenario",
    "scenario",
    "leaks_option",
    "near_duplicate_of",
    "model",
    "status",
    "edited_scenario",
    "gold",
    "level",
    f"{ANNOTATOR}1",
    f"{ANNOTATOR}2",
    f"{ANNOTATOR}3",
)
"""The columns. Those after "model" are for people; docs/decisions.md says what goes where."""


def write_sheet(folder: Path, rows: Sequence[Mapping[str, str]]) -> tuple[Path, Path]:
    """Writes ``review.csv`` and ``review.jsonl``; files that are there are replaced.

    Raises:
        OSError: The folder cannot be written to.
    """
    return sheets.write_sheet(folder, COLUMNS, rows)
