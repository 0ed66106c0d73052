"""Datasets: rows of JSON Lines, CSV and Parquet as requests, streamed and checked against the contract.

``DatasetReader`` reads a file that is open; ``open_source`` opens one by path or address; ``format_of`` tells
how it is written. See docs/reference/datasets.md.
"""

from __future__ import annotations

from dramaturg.datasets.json_lines import InvalidRow, Row, sample_id
from dramaturg.datasets.reader import DatasetReader, Manifest
from dramaturg.datasets.source import (
    DatasetError,
    DatasetLimitError,
    Format,
    format_of,
    is_remote,
    local_path,
    open_source,
)

__all__ = [
    "DatasetError",
    "DatasetLimitError",
    "DatasetReader",
    "Format",
    "InvalidRow",
    "Manifest",
    "Row",
    "format_of",
    "is_remote",
    "local_path",
    "open_source",
    "sample_id",
]
