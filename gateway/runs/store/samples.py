"""Samples in the tables: added, taken, listed. Each function is part of somebody's transaction."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_PENDING,
    RunSample,
    SampleState,
)
from gateway.runs.records import NewSample, SampleWork
from gateway.runs.store import runs
from gateway.runs.store.codec import (
    WORK_COLUMNS,
    dump_words,
    pack,
    pack_message,
    sample_work,
    unpack_message,
)
from gateway.runs.store.database import was_tried
from gateway.runs.store.tables import run_outcomes, run_rows, run_samples

_ROWS_AT_ONCE = 5000


def among(number: int, indices: Sequence[int]) -> sa.ColumnElement[bool]:
    """Whether a row of ``run_samples`` is one of these samples."""
    return (run_samples.c.run == number) & run_samples.c.sample.in_(indices)


def add(connection: sa.Connection, run_id: str, samples: Sequence[NewSample]) -> None:
    """See ``RunStore.add_samples``."""
    run = runs.lock(connection, run_id)
    if run is None:
        return
    query = sa.select(run_samples.c.sample).where(among(run.number, [sample.index for sample in samples]))
    there = set(connection.execute(query).scalars())
    new = list({sample.index: sample for sample in samples if sample.index not in there}.values())
    if not new:
        return
    connection.execute(run_rows.insert(), [_row(run.number, sample) for sample in new])
    connection.execute(run_samples.insert(), [_standing(run.number, sample) for sample in new])
    failed = [(sample.index, sample.failure) for sample in new if sample.failure is not None]
    if failed:
        kept = [
            {"run": run.number, "sample": index, "message": pack_message(failure)}
            for index, failure in failed
        ]
        connection.execute(run_outcomes.insert(), kept)
    runs.change(
        connection,
        run.number,
        samples=run.samples + len(new),
        failed=run.failed + len(failed),
        **runs.progress_event(run),
    )


def next_pending(connection: sa.Connection, run_id: str, after: int, limit: int) -> Sequence[int]:
    """See ``RunStore.next_pending``."""
    query = (
        sa.select(run_samples.c.sample)
        .where(
            run_samples.c.run == runs.number_of(connection, run_id),
            run_samples.c.state == SAMPLE_STATE_PENDING,
            run_samples.c.sample > after,
        )
        .order_by(run_samples.c.sample)
        .limit(limit)
    )
    return connection.execute(query).scalars().all()


def running(connection: sa.Connection, run_id: str) -> int:
    """See ``RunStore.running_samples``."""
    query = sa.select(sa.func.count()).where(
        run_samples.c.run == runs.number_of(connection, run_id),
        run_samples.c.executor.is_not(None),
        run_samples.c.state == SAMPLE_STATE_PENDING,
    )
    return connection.execute(query).scalar_one()


def take(
    connection: sa.Connection, run_id: str, indices: Sequence[int], executor: str
) -> Sequence[SampleWork]:
    """See ``RunStore.take_samples``."""
    run = runs.lock(connection, run_id)
    if run is None:
        return ()
    number: int = run.number
    query = sa.select(run_samples.c.sample, run_samples.c.executor).where(
        among(number, indices), run_samples.c.state == SAMPLE_STATE_PENDING
    )
    begun = {row.sample: row.executor for row in connection.execute(query)}
    taken = list(begun)
    before = {None, executor} if was_tried(connection) else {None}
    interrupted = [index for index, whose in begun.items() if whose not in before]
    if interrupted:
        again = run_samples.update().where(among(number, interrupted))
        connection.execute(again.values(tries=run_samples.c.tries + 1))
        runs.change(connection, number, interrupted=run.interrupted + len(interrupted))
    connection.execute(run_samples.update().where(among(number, taken)).values(executor=executor))
    work = (
        sa.select(*WORK_COLUMNS)
        .join_from(run_samples, run_rows, _same_sample(run_rows))
        .where(among(number, taken))
        .order_by(run_samples.c.sample)
    )
    return [sample_work(row) for row in connection.execute(work)]


def release(connection: sa.Connection, run_id: str, indices: Sequence[int]) -> None:
    """See ``RunStore.release_samples``."""
    number = runs.number_of(connection, run_id)
    if number is not None:
        connection.execute(run_samples.update().where(among(number, indices)).values(executor=None))


def listed(
    connection: sa.Connection,
    run_id: str,
    *,
    after: int,
    limit: int,
    states: Collection[SampleState.ValueType],
) -> Sequence[RunSample]:
    """See ``RunStore.list_samples``."""
    query = (
        sa.select(
            run_samples.c.sample,
            run_rows.c.line,
            run_rows.c.sample_id,
            run_rows.c.tags,
            run_samples.c.state,
            run_outcomes.c.message,
        )
        .join_from(run_samples, run_rows, _same_sample(run_rows))
        .outerjoin(run_outcomes, _same_sample(run_outcomes))
        .where(run_samples.c.run == runs.number_of(connection, run_id), run_samples.c.sample > after)
        .order_by(run_samples.c.sample)
        .limit(limit)
    )
    if states:
        query = query.where(run_samples.c.state.in_(states))
    return [_sample(row) for row in connection.execute(query)]


def tag_names(connection: sa.Connection, run_id: str, after: int) -> tuple[set[str], int | None]:
    """The names of the tags of some rows above an index, and the last of these; None: there are no more."""
    query = (
        sa.select(run_rows.c.sample, run_rows.c.tags)
        .where(run_rows.c.run == runs.number_of(connection, run_id), run_rows.c.sample > after)
        .order_by(run_rows.c.sample)
        .limit(_ROWS_AT_ONCE)
    )
    found = connection.execute(query).all()
    # Few rows differ in their tags' text, if they have tags at all.
    texts = {row.tags for row in found}
    return {name for text in texts for name in json.loads(text)}, found[-1].sample if found else None


def _sample(row: sa.Row[*tuple[Any, ...]]) -> RunSample:
    sample = RunSample() if row.message is None else unpack_message(RunSample, row.message)
    if row.state == SAMPLE_STATE_PENDING:  # what it has is of an earlier attempt; a failure was put behind it
        sample.ClearField("error")
    sample.index, sample.line, sample.sample_id = row.sample, row.line, row.sample_id
    sample.state = row.state
    sample.tags.clear()
    sample.tags.update(json.loads(row.tags))
    return sample


def _row(number: int, sample: NewSample) -> dict[str, Any]:
    return {
        "run": number,
        "sample": sample.index,
        "line": sample.line,
        "sample_id": sample.sample_id,
        "tags": dump_words(sample.tags),
        "request": pack(sample.request) if sample.failure is None else None,
    }


def _standing(number: int, sample: NewSample) -> dict[str, Any]:
    valid = sample.failure is None
    return {
        "run": number,
        "sample": sample.index,
        "valid": valid,
        "state": SAMPLE_STATE_PENDING if valid else SAMPLE_STATE_FAILED,
    }


def _same_sample(other: sa.Table) -> sa.ColumnElement[bool]:
    return (other.c.run == run_samples.c.run) & (other.c.sample == run_samples.c.sample)
