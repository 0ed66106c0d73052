"""Rows of the tables as records and messages, and back."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, TypeVar

import sqlalchemy as sa
from google.protobuf.message import Message

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN, AbstainReason
from dramaturg.api.evaluation.v1.run_pb2 import DatasetManifest, RunSpec, RunTrouble
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from gateway.runs.records import Counts, RunRecord, SampleWork
from gateway.runs.store import pace
from gateway.runs.store.tables import run_results, run_rows, run_samples, run_specs, runs, word

AnyMessage = TypeVar("AnyMessage", bound=Message)

RUN_COLUMNS = (*runs.c, run_specs.c.spec, run_specs.c.manifest)
"""What ``run_record`` reads."""

WORK_COLUMNS = (*(column for column in run_rows.c if column.name != "run"), run_samples.c.tries)
"""What ``sample_work`` reads."""

RESULT_COLUMNS = (*run_results.c, run_rows.c.sample_id, run_rows.c.tags)
"""What ``result_of`` reads."""


def pack(data: bytes) -> bytes:
    """Compresses."""
    return zlib.compress(data, 6)


def unpack(data: bytes) -> bytes:
    """Takes back what ``pack`` did."""
    return zlib.decompress(data)


def pack_message(message: Message) -> bytes:
    """A message, serialised and compressed."""
    return pack(message.SerializeToString(deterministic=True))


def unpack_message(kind: type[AnyMessage], data: bytes) -> AnyMessage:
    """Takes back what ``pack_message`` did."""
    return kind.FromString(unpack(data))


def dump_words(words: Mapping[str, Any]) -> str:
    """A JSON object, in ASCII: PostgreSQL keeps no U+0000."""
    return json.dumps(dict(words), separators=(",", ":"))


def reason_name(reason: int) -> str:
    """The name by which abstentions are counted, such as "TIMED_OUT"; a reason not known here is a number."""
    value = AbstainReason.DESCRIPTOR.values_by_number.get(reason)
    return str(reason) if value is None else value.name.removeprefix("ABSTAIN_REASON_")


def run_record(row: sa.Row[*tuple[Any, ...]]) -> RunRecord:
    """The record of a row with RUN_COLUMNS."""
    reasons: dict[str, int] = json.loads(row.abstentions)
    return RunRecord(
        id=row.id,
        tenant=row.tenant,
        spec=RunSpec.FromString(row.spec),
        state=row.state,
        state_reason=row.state_reason,
        attempt=row.attempt,
        repeat_offset=row.repeat_offset,
        counts=Counts(
            samples=row.samples,
            succeeded=row.succeeded,
            failed=row.failed,
            judgements=row.judgements,
            abstentions=sum(reasons.values()),
            abstentions_by_reason=reasons,
            interrupted=row.interrupted,
            usage=Usage.FromString(row.usage),
        ),
        manifest=DatasetManifest.FromString(row.manifest or b""),
        version=row.version,
        create_time=row.create_time,
        update_time=row.update_time,
        start_time=row.start_time,
        end_time=row.end_time,
        advance_time=pace.last(row.pace),
        trouble=None if row.trouble is None else RunTrouble.FromString(row.trouble),
    )


def sample_work(row: sa.Row[*tuple[Any, ...]], tries: int) -> SampleWork:
    """The record of a row with WORK_COLUMNS of a sample that was begun so often."""
    return SampleWork(
        index=row.sample,
        line=row.line,
        sample_id=row.sample_id,
        tags=json.loads(row.tags),
        request=unpack(row.request),
        tries=tries,
    )


def result_row(number: int, place: int, result: RunResult) -> tuple[Any, ...]:
    """The row of a judgement, as ``insert`` takes it."""
    return (
        number,
        result.sample_index,
        place,
        word(result.model),
        word(result.candidate_id),
        word(result.measure),
        result.outcome,
        result.abstain_reason,
        result.value if result.HasField("value") else None,
        result.confidence if result.HasField("confidence") else None,
        word(result.label),
        word(result.role),
        word(result.judge),
    )


def result_of(row: sa.Row[*tuple[Any, ...]]) -> RunResult:
    """The judgement of a row with RESULT_COLUMNS, without what stands only in the outcome."""
    return RunResult(
        sample_index=row.sample,
        sample_id=row.sample_id,
        tags=json.loads(row.tags),
        model=row.model,
        candidate_id=row.candidate,
        measure=row.measure,
        outcome=row.outcome,
        abstain_reason=row.reason,
        value=row.value,
        confidence=row.confidence,
        label=row.label,
        role=row.role,
        judge=row.judge,
    )


def is_abstention(result: RunResult) -> bool:
    """Whether there is no judgement."""
    return result.outcome == OUTCOME_ABSTAIN
