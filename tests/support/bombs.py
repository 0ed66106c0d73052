"""Datasets that are small and expand."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pyarrow as pa
from pyarrow import parquet

GOOD_LINE = b'{"task": {"goal": "Make tea"}, "candidates": [{"id": "a", "text": "1. Boil."}]}\n'


def parquet_bytes(columns: dict[str, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def dictionary_bomb(rows: int = 200, references: int = 60, text_bytes: int = 1 << 20) -> bytes:
    """A file of about a kilobyte: one long text in a dictionary, to which each row refers many times."""
    constraints = pa.ListArray.from_arrays(
        pa.array(range(0, rows * references + 1, references), pa.int32()),
        pa.DictionaryArray.from_arrays(pa.array([0] * (rows * references), pa.int32()), ["x" * text_bytes]),
    )
    columns = {"task.goal": ["Make tea"] * rows, "task.constraints": constraints}
    return parquet_bytes(
        columns,
        compression="zstd",
        write_statistics=False,
        dictionary_pagesize_limit=4 * text_bytes,
        row_group_size=rows,
    )


def delta_bomb(rows: int = 8, references: int = 50, text_bytes: int = 1 << 20) -> bytes:
    """A file in which each text repeats the one before as its prefix."""
    columns = {
        "task.goal": ["Make tea"] * rows,
        "task.constraints": pa.array([["x" * text_bytes] * references] * rows),
    }
    return parquet_bytes(
        columns,
        compression="zstd",
        write_statistics=False,
        use_dictionary=False,
        column_encoding={"task.goal": "PLAIN", "task.constraints.list.element": "DELTA_BYTE_ARRAY"},
    )


def empty_rows(count: int) -> bytes:
    """JSON Lines of rows without members, compressed."""
    return gzip.compress(b"{}\n" * count, 1)


def blank_bomb(megabytes: int) -> bytes:
    """Blank lines, compressed."""
    return gzip.compress((b" " * 1023 + b"\n") * (megabytes << 10), 9)


def line_bomb(megabytes: int) -> bytes:
    """Line ends alone, compressed."""
    return gzip.compress(b"\n" * (1 << 20), 9) * megabytes
