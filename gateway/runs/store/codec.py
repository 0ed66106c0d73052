"""Converts rows of the tables to records and messages, and back."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, TypeVar

import sqlalchemy as sa
from google.protobuf.message import Message

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_UNSPECIFIED, OUTCOME_ABSTAIN
from dramaturg.api.evaluation.v1.run_pb2 import DatasetManifest, RunIncident, RunSpec
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswerFigures
from gateway.runs.records import Counts, RunRecord, SampleWork
from gateway.runs.store import throughput
from gateway.runs.store.tables import run_results, run_rows, run_samples, run_specs, runs, sanitize

AnyMessage = TypeVar("AnyMessage", bound=Message)

RUN_COLUMNS = (*runs.c, run_specs.c.spec, run_specs.c.manifest)
"""Read by ``run_record``."""

WORK_COLUMNS = (
    *(column for column in run_rows.c if column.name != "run"),
    run_samples.c.crashes,
    run_samples.c.waits,
)
"""Read by ``sample_work``."""

RESULT_COLUMNS = (*run_results.c, run_rows.c.sample_id, run_rows.c.tags)
"""Read by ``result_of``."""


def pack(data: bytes) -> bytes:
    # Level 6 takes four times the processor time for 2 % fewer bytes of an outcome.
    return zlib.compress(data, 3)


def unpack(data: bytes) -> bytes:
    return zlib.decompress(data)


def pack_message(message: Message) -> bytes:
    """A message, serialised and compressed."""
    return pack(message.SerializeToString(deterministic=True))


def unpack_message(kind: type[AnyMessage], data: bytes) -> AnyMessage:
    return kind.FromString(unpack(data))


def dump_json(value: Mapping[str, Any]) -> str:
    """A JSON object in ASCII: PostgreSQL stores no U+0000."""
    return json.dumps(dict(value), separators=(",", ":"))


def run_record(row: sa.Row[*tuple[Any, ...]]) -> RunRecord:
    """The record of a row of RUN_COLUMNS."""
    reasons: dict[str, int] = json.loads(row.abstentions)
    return RunRecord(
        id=row.id,
        tenant=row.tenant,
        spec=RunSpec.FromString(row.spec),
        state=row.state,
        state_reason=row.state_reason,
        outcome=row.outcome,
        attempt=row.attempt,
        repeat_offset=row.repeat_offset,
        counts=Counts(
            samples=row.samples,
            succeeded=row.succeeded,
            failed=row.failed,
            failures_by_reason=json.loads(row.failures),
            judgements=row.judgements,
            abstentions=sum(reasons.values()),
            abstentions_by_reason=reasons,
            interrupted=row.interrupted,
            usage=Usage.FromString(row.usage),
            gold_answers=GoldAnswerFigures.FromString(row.gold_answers or b""),
        ),
        manifest=DatasetManifest.FromString(row.manifest or b""),
        version=row.version,
        create_time=row.create_time,
        update_time=row.update_time,
        start_time=row.start_time,
        end_time=row.end_time,
        cursor=row.cursor,
        advance_time=throughput.last_advance(row.throughput),
        incident=None if row.incident is None else RunIncident.FromString(row.incident),
        creator=row.creator,
    )


def sample_work(row: sa.Row[*tuple[Any, ...]], crashes: int) -> SampleWork:
    """The record of a row of WORK_COLUMNS."""
    return SampleWork(
        index=row.sample,
        line=row.line,
        sample_id=row.sample_id,
        tags=json.loads(row.tags),
        request=unpack(row.request),
        crashes=crashes,
        waits=row.waits,
    )


def result_row(number: int, place: int, result: RunResult) -> tuple[Any, ...]:
    """The row of a judgement for ``insert``."""
    return (
        number,
        result.sample_index,
        place,
        sanitize(result.model),
        sanitize(result.candidate_id),
        sanitize(result.measure),
        result.outcome,
        # One column holds both: a judgement with a value does not abstain.
        result.abstain_reason or result.failure_reason,
        result.value if result.HasField("value") else None,
        result.confidence if result.HasField("confidence") else None,
        result.measured_confidence if result.HasField("measured_confidence") else None,
        sanitize(result.label),
        sanitize(result.role),
        sanitize(result.judge),
    )


def result_of(row: sa.Row[*tuple[Any, ...]]) -> RunResult:
    """The judgement of a row of RESULT_COLUMNS, without the texts, which only the outcome has."""
    abstains = row.outcome == OUTCOME_ABSTAIN
    return RunResult(
        sample_index=row.sample,
        sample_id=row.sample_id,
        tags=json.loads(row.tags),
        model=row.model,
        candidate_id=row.candidate,
        measure=row.measure,
        outcome=row.outcome,
        abstain_reason=row.reason if abstains else ABSTAIN_REASON_UNSPECIFIED,
        failure_reason=ABSTAIN_REASON_UNSPECIFIED if abstains else row.reason,
        value=row.value,
        confidence=row.confidence,
        measured_confidence=row.measured_confidence,
        label=row.label,
        role=row.role,
        judge=row.judge,
    )


def is_abstention(result: RunResult) -> bool:
    return result.outcome == OUTCOME_ABSTAIN
