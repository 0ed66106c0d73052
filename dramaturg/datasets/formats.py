"""How a dataset is written."""

from __future__ import annotations

from enum import StrEnum

MAX_LINE_BYTES = 16 << 20
"""The longest line of JSON Lines or CSV, in bytes; it is also the largest request that a server takes."""


class Format(StrEnum):
    """How the rows of a dataset are written (``evaluation.v1.DatasetFormat``)."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


_ENDS = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
}
ENDS = tuple(_ENDS)
"""The ends of names that tell the format."""


def format_of(name: str) -> Format | None:
    """The format that the end of a name tells, such as ".csv" or ".csv.gz". None: it tells none."""
    name = name.casefold()
    compressed = name.endswith(".gz")
    found = next((form for end, form in _ENDS.items() if name.removesuffix(".gz").endswith(end)), None)
    # Parquet compresses by itself; as a whole it could not be read piece by piece.
    return None if compressed and found is Format.PARQUET else found
