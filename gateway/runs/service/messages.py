"""Finds the runs of a tenant, and converts them to messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_RUNNING, Run, RunProgress
from dramaturg.results.run_text import state_name
from dramaturg.service.errors import ServiceError
from gateway.runs.records import ACTIVE, RunRecord
from gateway.runs.store import RunStore
from gateway.runs.store_calls import ServiceCaller, not_found

RATE_SECONDS = 60.0
"""The period over which the throughput is measured."""


def describe(record: RunRecord, store: RunStore) -> Run:
    """The run as a message. Blocks: reads the throughput from the store."""
    run = Run(
        id=record.id,
        spec=record.spec,
        state=record.state,
        state_reason=record.state_reason,
        outcome=record.outcome,
        progress=progress(record, store),
        dataset=record.manifest,
        create_time=_stamp(record.create_time),
        update_time=_stamp(record.update_time),
        created_by_version=record.version,
        attempt=record.attempt,
        creator=record.creator,
    )
    if record.start_time is not None:
        run.start_time.CopyFrom(_stamp(record.start_time))
    if record.end_time is not None:
        run.end_time.CopyFrom(_stamp(record.end_time))
    return run


def describe_one(record: RunRecord, store: RunStore) -> Run:
    """The run as a message, with its judges. Blocks."""
    return describe_all([record], store)[0]


def describe_all(records: Sequence[RunRecord], store: RunStore) -> list[Run]:
    """The runs as messages, with their judges. Blocks."""
    judges = store.judges.of_runs([record.id for record in records])
    runs = []
    for record in records:
        run = describe(record, store)
        for seen in judges.get(record.id, ()):
            run.judges.add(
                role=seen.role,
                judge=seen.judge,
                name=seen.name,
                version=seen.version,
                first_seen_time=None if seen.time is None else _stamp(seen.time),
            )
        runs.append(run)
    return runs


def progress(record: RunRecord, store: RunStore) -> RunProgress:
    """The progress of a run. Blocks: reads the throughput from the store."""
    counts = record.counts
    known = RunProgress(
        sample_count=counts.samples,
        succeeded_count=counts.succeeded,
        failed_count=counts.failed,
        judgement_count=counts.judgements,
        abstention_count=counts.abstentions,
        abstentions_by_reason=counts.abstentions_by_reason,
        usage=counts.usage,
        interrupted_sample_count=counts.interrupted,
        failures_by_reason=counts.failures_by_reason,
        coverage=counts.coverage,
    )
    if counts.gold_answers.sample_count:
        known.gold_answers.CopyFrom(counts.gold_answers)
    if record.state not in ACTIVE:
        return known
    known.running_count = store.samples.running(record.id)
    if record.spec.HasField("batch_then_live"):
        known.batch_waiting_count = store.samples.waiting(record.id)
    if record.incident is not None:
        known.incident.CopyFrom(record.incident)
    if record.state != RUN_STATE_RUNNING:
        return known
    if record.advance_time is not None:
        known.last_advance_time.CopyFrom(_stamp(record.advance_time))
    if rate := store.runs.rate(record.id, RATE_SECONDS):
        known.samples_per_second = rate
        if known.incident.failed_attempt_count:
            return known
        known.remaining_time.FromTimedelta(timedelta(seconds=counts.left / rate))
    return known


def _stamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp


class RunLookup:
    """Finds the runs of a tenant.

    Args:
        store: The run store.
        caller: Calls it.
    """

    def __init__(self, store: RunStore, caller: ServiceCaller) -> None:
        self._store = store
        self._caller = caller

    async def find(self, run_id: str, tenant: str) -> RunRecord:
        """Returns a run.

        Raises:
            ServiceError: NOT_FOUND: it does not exist, or belongs to another tenant.
        """
        run = await self._caller.call(self._store.runs.get, run_id, tenant)
        if run is None:
            raise not_found("run", run_id)
        return run

    async def get(self, run_id: str, tenant: str) -> Run:
        """Returns a run as a message; raises as ``find`` does."""
        return await self._caller.call(self._get, run_id, tenant)

    async def describe(self, run: RunRecord) -> Run:
        """Returns a run as a message."""
        return await self._caller.call(describe_one, run, self._store)

    def _get(self, run_id: str, tenant: str) -> Run:
        run = self._store.runs.get(run_id, tenant)
        if run is None:
            raise not_found("run", run_id)
        return describe_one(run, self._store)


def wrong_state(run: RunRecord, wanted: str) -> ServiceError:
    """The error of a call that the state of the run does not allow.

    Args:
        run: The run.
        wanted: The required condition, for example "has ended".
    """
    state = state_name(run.state)
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_RUN_STATE,
        f"run {run.id!r} is {state}: the call requires a run that {wanted}",
        metadata={"run_id": run.id, "state": state},
    )
