"""Reads abstract goals: requests as JSON Lines, or one goal a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dramaturg.api.generation.v1.authoring_datasets_pb2 import ExpandConstraintsRequest
from dramaturg.datasets import Row
from dramaturg.datasets.row_file import open_rows
from dramaturg.service.validation import violations


def read_goals(file: str, limit: int | None) -> Sequence[Row[ExpandConstraintsRequest]]:
    """The requests of a file.

    Args:
        file: JSON Lines of ExpandConstraintsRequest where the first character is ``{``, else plain text: a
            goal a line, its topic after a tab where it has one. "-" is standard input, JSON Lines only.
        limit: The number of goals to read. None: all.

    Raises:
        OSError: The file cannot be read.
        RowsError: A line is no valid request.
        ValueError: A line of plain text is no valid goal; the message names it.
    """
    if file != "-":
        text = Path(file).read_text(encoding="utf-8-sig")
        if not text.lstrip().startswith("{"):
            return _plain(text, limit)
    with open_rows(file, ExpandConstraintsRequest, limit) as rows:
        rows.check()
        return list(rows)


def _plain(text: str, limit: int | None) -> Sequence[Row[ExpandConstraintsRequest]]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        goal, _, topic = (part.strip() for part in line.partition("\t"))
        if not goal:
            continue
        request = ExpandConstraintsRequest(abstract_goal=goal, topic=topic)
        if broken := violations(request):
            raise ValueError(f"line {number}: {broken[0].field}: {broken[0].description}")
        found.append(Row(number, request))
    return found[:limit]
