"""Reads votes on pairs of scripts: sheets of annotators, or records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dramaturg.api.graph.v1.graph_service_pb2 import (
    PREFERENCE_BETTER,
    PREFERENCE_EQUAL,
    PREFERENCE_UNDECIDED,
    PREFERENCE_WORSE,
    Comparison,
    Preference,
)
from dramaturg.datasets.json_lines import LineError
from dramaturg.datasets.spreadsheet import read_table

VOTES = {
    "better": PREFERENCE_BETTER,
    "equal": PREFERENCE_EQUAL,
    "worse": PREFERENCE_WORSE,
    "undecided": PREFERENCE_UNDECIDED,
}
"""The words of votes."""


def read_votes(files: Sequence[Path]) -> Sequence[Comparison]:
    """Reads the votes of all files by comparison, in the order of their first votes.

    Args:
        files: CSV with a header, or JSON Lines. A row has the id of a comparison and one ``vote``, or a list
            of ``votes``. An empty vote does not count.

    Raises:
        LineError: A row has no id, or something that is no vote.
        OSError: A file cannot be read.
    """
    comparisons: dict[str, Comparison] = {}
    for file in files:
        for line, row in read_table(file):
            found = str(row.get("id") or "").strip()
            if not found:
                raise LineError(file, line, 'has no "id"')
            comparison = comparisons.setdefault(found, Comparison(id=found))
            comparison.votes.extend(_votes(file, line, row))
    return list(comparisons.values())


def _votes(file: Path, line: int, row: Mapping[str, Any]) -> Iterator[Preference.ValueType]:
    if "votes" not in row and "vote" not in row:
        raise LineError(file, line, 'has neither "vote" nor "votes"')
    votes = row.get("votes", [row.get("vote")])
    if not isinstance(votes, list):
        raise LineError(file, line, '"votes" must be a list')
    for vote in votes:
        word = str(vote or "").strip().casefold()
        if word and word not in VOTES:
            raise LineError(file, line, f"the vote is {word[:50]!r}, none of {', '.join(VOTES)}")
        if word:
            yield VOTES[word]
