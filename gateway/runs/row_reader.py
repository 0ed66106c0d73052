"""Reads datasets as rows of the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.runs.dataset_process import IsolatedSampleReader
from gateway.runs.datasets import SampleReader
from gateway.runs.records import SampleRow
from gateway.runs.store.samples import decode_rows, encode_rows, row_groups


def read_rows(reader: SampleReader | IsolatedSampleReader) -> Iterator[Sequence[SampleRow]]:
    """The rows of a dataset, in groups of which a transaction adds one. Raises as the reader does."""
    if isinstance(reader, SampleReader):
        return row_groups(reader)
    return map(decode_rows, reader.pieces(_encode_groups))


def _encode_groups(samples: SampleReader) -> Iterator[bytes]:
    return map(encode_rows, row_groups(samples))
