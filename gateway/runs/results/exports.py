"""A run's judgements as one file, piece by piece: neither the run nor the file is ever whole in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict

from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Outcome
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.datasets.spreadsheet import csv_record

PIECE_BYTES = 256 << 10
"""Pieces are about so large."""

COLUMNS: Mapping[str, Callable[[RunResult], Any]] = {
    "sample_index": lambda result: result.sample_index,
    "sample_id": lambda result: result.sample_id,
    "model": lambda result: result.model,
    "candidate_id": lambda result: result.candidate_id,
    "measure": lambda result: result.measure,
    "outcome": lambda result: _name(Outcome, result.outcome, "OUTCOME_"),
    "abstain_reason": lambda result: _name(AbstainReason, result.abstain_reason, "ABSTAIN_REASON_"),
    "value": lambda result: result.value if result.HasField("value") else None,
    "confidence": lambda result: result.confidence if result.HasField("confidence") else None,
    "label": lambda result: result.label,
    "role": lambda result: result.role,
    "judge": lambda result: result.judge,
    "rationale": lambda result: result.rationale,
    "findings": lambda result: _json([MessageToDict(finding) for finding in result.findings] or None),
    "provenance": lambda result: _json(
        MessageToDict(result.provenance) if result.HasField("provenance") else None
    ),
}
"""The columns of a table of judgements, before those of the tags: what each holds. None: an empty cell."""


def as_json_lines(results: Iterable[RunResult]) -> Iterator[bytes]:
    """One ``RunResult`` a line, in protobuf's JSON."""
    return in_pieces(f"{_json(MessageToDict(result))}\n".encode() for result in results)


def samples_as_json_lines(samples: Iterable[RunSample]) -> Iterator[bytes]:
    """The result of each sample that has one, a line each, as the evaluate commands write them."""
    return in_pieces(
        f"{_json(MessageToDict(getattr(sample, kind)))}\n".encode()
        for sample in samples
        if (kind := sample.WhichOneof("result")) is not None
    )


def as_csv(results: Iterable[RunResult], tags: Sequence[str]) -> Iterator[bytes]:
    """A table (RFC 4180, UTF-8) with a header; an empty cell where there is nothing.

    Args:
        results: The judgements.
        tags: The tags that get a column "tags.<name>" each.
    """
    return in_pieces(_csv_lines(results, tags))


def table_row(result: RunResult, tags: Sequence[str]) -> list[Any]:
    """The cells of a judgement: those of COLUMNS, then one for each of the tags."""
    return [*(cell(result) for cell in COLUMNS.values()), *(result.tags.get(tag) for tag in tags)]


def header(tags: Sequence[str]) -> list[str]:
    """The names of the columns."""
    return [*COLUMNS, *(f"tags.{tag}" for tag in tags)]


def in_pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces that are worth sending."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield from _split(b"".join(waiting))
            waiting, size = [], 0
    if waiting:
        yield from _split(b"".join(waiting))


def _split(piece: bytes) -> Iterator[bytes]:
    for start in range(0, len(piece), 4 * PIECE_BYTES):
        yield piece[start : start + 4 * PIECE_BYTES]


def _csv_lines(results: Iterable[RunResult], tags: Sequence[str]) -> Iterator[bytes]:
    yield csv_record(header(tags)).encode()
    for result in results:
        yield csv_record(table_row(result, tags)).encode()


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _name(kind: Any, number: int, prefix: str) -> str | None:
    """The name of an enum's value; nothing for the unspecified one, the number of one not known here."""
    if number == 0:
        return None
    value = kind.DESCRIPTOR.values_by_number.get(number)
    return str(number) if value is None else str(value.name).removeprefix(prefix)
