"""Samples as rows of the tables.

They are made before the transaction that adds them; those of a large dataset in the process that reads it,
since their conversion takes longer than their insertion.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence

from dramaturg.results.coverage import failure_name
from gateway.runs.records import NewSample, SampleRow
from gateway.runs.store.codec import dump_json, pack, pack_message
from gateway.runs.store.tables import sanitize

GROUP_SIZE = 500
"""The most samples of one transaction."""
GROUP_BYTES = 4 << 20
"""The most bytes of requests of one transaction, unless a single request has more."""

_HEAD = struct.Struct("!I")


def sample_row(sample: NewSample) -> SampleRow:
    failed = sample.failure
    return SampleRow(
        sample.index,
        sample.line,
        sanitize(sample.sample_id),
        dump_json(sample.tags),
        pack(sample.request) if failed is None else None,
        None if failed is None else failure_name(failed.error),
        None if failed is None else pack_message(failed),
    )


def sample_rows(samples: Iterable[NewSample]) -> Sequence[SampleRow]:
    return list(map(sample_row, samples))


def row_groups(samples: Iterable[NewSample]) -> Iterator[Sequence[SampleRow]]:
    """The rows of samples, in groups of which a transaction adds one."""
    group: list[SampleRow] = []
    size = 0
    for sample in samples:
        group.append(sample_row(sample))
        size += len(sample.request)
        if len(group) >= GROUP_SIZE or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def encode_rows(rows: Sequence[SampleRow]) -> bytes:
    """Rows as bytes, for ``decode_rows``."""
    # The request of a row or, where it has none, its outcome.
    blobs = [row.request if row.outcome is None else row.outcome for row in rows]
    fields = [
        (row.sample, row.line, row.sample_id, row.tags, row.failure, len(blob or b""))
        for row, blob in zip(rows, blobs, strict=True)
    ]
    head = json.dumps(fields).encode()
    return b"".join((_HEAD.pack(len(head)), head, *filter(None, blobs)))


def decode_rows(content: bytes) -> Sequence[SampleRow]:
    """The rows of the result of ``encode_rows``."""
    (size,) = _HEAD.unpack_from(content)
    end = _HEAD.size + size
    rows = []
    for index, line, sample_id, tags, failure, length in json.loads(content[_HEAD.size : end]):
        blob = content[end : end + length]
        end += length
        request, outcome = (blob, None) if failure is None else (None, blob)
        rows.append(SampleRow(index, line, sample_id, tags, request, failure, outcome))
    return rows
