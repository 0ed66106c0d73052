"""Samples in the tables: added, taken, released and listed."""

from __future__ import annotations

import json
import struct
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_PENDING,
    RunSample,
    SampleState,
)
from dramaturg.database.database import Repository, insert, reading, writing
from dramaturg.results.coverage import failure_name
from gateway.runs.records import NewSample, SampleRow, SampleWork
from gateway.runs.store import runs
from gateway.runs.store.codec import (
    WORK_COLUMNS,
    dump_json,
    pack,
    pack_message,
    sample_work,
    unpack,
    unpack_message,
)
from gateway.runs.store.tables import run_outcomes, run_rows, run_samples, sanitize

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


_ROWS_AT_ONCE = 5000
_ROWS_OF_FETCH = 10


def among(number: int, indices: Sequence[int]) -> sa.ColumnElement[bool]:
    """Selects these samples in ``run_samples``."""
    return (run_samples.c.run == number) & run_samples.c.sample.in_(indices)


class Samples(Repository):
    """The samples of runs: their rows and states."""

    @writing
    def add(self, connection: sa.Connection, run_id: str, samples: Sequence[SampleRow]) -> None:
        """Adds samples of the dataset. Skips indices that exist, so that reading may be repeated."""
        run = runs.lock(connection, run_id)
        if run is None:
            return
        rows = {row.sample: row for row in samples}
        bounds = {"its_run": run.number, "first": min(rows, default=0), "last": max(rows, default=0)}
        for index in connection.execute(_BETWEEN, bounds).scalars():
            rows.pop(index, None)
        if not rows:
            return
        new, number = list(rows.values()), run.number
        failed = [row for row in new if row.failure is not None]
        insert(connection, run_rows, [(number, *row[:5]) for row in new])
        insert(connection, run_samples, [_state_row(number, row) for row in new])
        insert(connection, run_outcomes, [(number, row.sample, row.outcome) for row in failed])
        reasons = Counter(json.loads(run.failures))
        reasons.update(row.failure for row in failed)
        runs.change(
            connection,
            number,
            samples=run.samples + len(new),
            # Progress: earlier deaths were not of these rows.
            preparations=min(run.preparations, 1),
            failed=run.failed + len(failed),
            failures=dump_json(reasons),
            **runs.progress_event(run),
        )

    @reading
    def next_pending(
        self, connection: sa.Connection, run_id: str, after: int, limit: int, *, put_off: bool = False
    ) -> Sequence[int]:
        """The indices of pending samples above ``after``, ascending.

        Args:
            connection: That of the transaction.
            run_id: The run.
            after: The index.
            limit: The most indices.
            put_off: Whether samples that wait for batches, and are evaluated later, are included.
        """
        values = {
            "its_run": runs.number_of(connection, run_id),
            "after": after,
            "most": limit,
            "now": sys.maxsize if put_off else self._database.now(connection),
        }
        return connection.execute(_NEXT_PENDING, values).scalars().all()

    @reading
    def running(self, connection: sa.Connection, run_id: str) -> int:
        """The number of samples that are started and not done."""
        return connection.execute(_RUNNING, {"its_run": runs.number_of(connection, run_id)}).scalar_one()

    @writing
    def take(
        self, connection: sa.Connection, run_id: str, indices: Sequence[int], executor_id: str
    ) -> Sequence[SampleWork]:
        """The pending ones of these samples; marks them as started by the executor.

        A sample that was started before, by any executor, counts as interrupted.
        """
        run = runs.lock(connection, run_id)
        if run is None:
            return ()
        number: int = run.number
        begun = connection.execute(_PENDING_AMONG, {"its_run": number, "indices": indices}).all()
        interrupted = {row.sample for row in begun if row.executor is not None}
        if interrupted:
            again = run_samples.update().where(among(number, list(interrupted)))
            connection.execute(again.values(crashes=run_samples.c.crashes + 1))
            runs.change(connection, number, interrupted=run.interrupted + len(interrupted))
        taken = [row.sample for row in begun]
        connection.execute(_BEGIN, {"its_run": number, "indices": taken, "whose": executor_id})
        return [sample_work(row, row.crashes + (row.sample in interrupted)) for row in begun]

    @writing
    def release(self, connection: sa.Connection, run_id: str, indices: Sequence[int]) -> None:
        """Marks samples as not started, so that taking them again is no interruption."""
        number = runs.number_of(connection, run_id)
        if number is not None:
            connection.execute(run_samples.update().where(among(number, indices)).values(executor=None))

    @writing
    def put_off(
        self, connection: sa.Connection, run_id: str, waiting: Mapping[int, tuple[int, float]]
    ) -> None:
        """Marks pending samples as not started and waiting for batches.

        Args:
            connection: That of the transaction.
            run_id: The run.
            waiting: How often in a row each was found waiting, and the seconds until it is evaluated again.
        """
        run = runs.lock(connection, run_id)
        if run is None:
            return
        now = self._database.now(connection)
        rows = [
            {"its_run": run.number, "its_index": index, "count": count, "then": now + int(seconds * 1e6)}
            for index, (count, seconds) in waiting.items()
        ]
        connection.execute(_PUT_OFF, rows)
        runs.change(connection, run.number, **runs.progress_event(run))

    @reading
    def waiting(self, connection: sa.Connection, run_id: str) -> int:
        """The number of samples that wait for batches and are not started."""
        return connection.execute(_WAITING, {"its_run": runs.number_of(connection, run_id)}).scalar_one()

    @reading
    def page(
        self,
        connection: sa.Connection,
        run_id: str,
        *,
        after: int,
        limit: int,
        states: Collection[SampleState.ValueType] = (),
        max_bytes: int | None = None,
    ) -> Sequence[RunSample]:
        """Samples by index, above ``after``, with their results, also those of an earlier attempt.

        The last one is that with which they exceed ``max_bytes`` together, if any does.
        """
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
        if max_bytes is None:
            return [_sample(row) for row in connection.execute(query)]
        found: list[RunSample] = []
        # PostgreSQL's driver would hold all rows.
        with connection.execute(query, execution_options={"yield_per": _ROWS_OF_FETCH}) as rows:
            for row in rows:
                found.append(_sample(row))
                max_bytes -= found[-1].ByteSize()
                if max_bytes < 0:
                    break
        return found

    @reading
    def requests(self, connection: sa.Connection, run_id: str, indices: Sequence[int]) -> Mapping[int, bytes]:
        """The requests of samples, by index."""
        mine = run_rows.c.run == runs.number_of(connection, run_id)
        query = sa.select(run_rows.c.sample, run_rows.c.request).where(mine, run_rows.c.sample.in_(indices))
        return {
            row.sample: unpack(row.request) for row in connection.execute(query) if row.request is not None
        }

    def tag_names(self, run_id: str) -> Sequence[str]:
        """The names of all tags of samples, sorted."""
        names: set[str] = set()
        after: int | None = -1
        while after is not None:
            found, after = self._tag_names(run_id, after)
            names |= found
        return sorted(names)

    @reading
    def _tag_names(self, connection: sa.Connection, run_id: str, after: int) -> tuple[set[str], int | None]:
        """The tag names of a bounded number of rows above an index, and the last index; None at the end."""
        query = (
            sa.select(run_rows.c.sample, run_rows.c.tags)
            .where(run_rows.c.run == runs.number_of(connection, run_id), run_rows.c.sample > after)
            .order_by(run_rows.c.sample)
            .limit(_ROWS_AT_ONCE)
        )
        found = connection.execute(query).all()
        # Most rows have equal tags or none.
        texts = {row.tags for row in found}
        return {name for text in texts for name in json.loads(text)}, found[-1].sample if found else None


def _same_sample(other: sa.Table) -> sa.ColumnElement[bool]:
    return (other.c.run == run_samples.c.run) & (other.c.sample == run_samples.c.sample)


_MINE = run_samples.c.run == sa.bindparam("its_run")
_AMONG = run_samples.c.sample.in_(sa.bindparam("indices", expanding=True))
# Built once: these queries run continuously.
_PENDING_AMONG = (
    sa.select(*WORK_COLUMNS, run_samples.c.executor)
    .join_from(run_samples, run_rows, _same_sample(run_rows))
    .where(_MINE, _AMONG, run_samples.c.state == SAMPLE_STATE_PENDING)
    .order_by(run_samples.c.sample)
)
# As the database has it, in microseconds.
_DUE = sa.type_coerce(run_samples.c.due, sa.BigInteger)
_WAITING = sa.select(sa.func.count()).where(
    _MINE,
    run_samples.c.state == SAMPLE_STATE_PENDING,
    run_samples.c.executor.is_(None),
    run_samples.c.due.is_not(None),
)
_PUT_OFF = (
    run_samples.update()
    .where(_MINE, run_samples.c.sample == sa.bindparam("its_index"))
    .where(run_samples.c.state == SAMPLE_STATE_PENDING)
    .values(executor=None, waits=sa.bindparam("count"), due=sa.bindparam("then", type_=sa.BigInteger))
)
_RUNNING = sa.select(sa.func.count()).where(
    _MINE, run_samples.c.executor.is_not(None), run_samples.c.state == SAMPLE_STATE_PENDING
)
_NEXT_PENDING = (
    sa.select(run_samples.c.sample)
    .where(_MINE, run_samples.c.state == SAMPLE_STATE_PENDING, run_samples.c.sample > sa.bindparam("after"))
    .where(sa.or_(_DUE.is_(None), sa.bindparam("now") >= _DUE))
    .order_by(run_samples.c.sample)
    .limit(sa.bindparam("most"))
)
_BETWEEN = sa.select(run_samples.c.sample).where(
    _MINE, run_samples.c.sample.between(sa.bindparam("first"), sa.bindparam("last"))
)
_BEGIN = run_samples.update().where(_MINE, _AMONG).values(executor=sa.bindparam("whose"))


def _sample(row: sa.Row[*tuple[Any, ...]]) -> RunSample:
    sample = RunSample() if row.message is None else unpack_message(RunSample, row.message)
    if (
        row.state == SAMPLE_STATE_PENDING
    ):  # its outcome is of an earlier attempt, and an error there is obsolete
        sample.ClearField("error")
    sample.index, sample.line, sample.sample_id = row.sample, row.line, row.sample_id
    sample.state = row.state
    sample.tags.clear()
    sample.tags.update(json.loads(row.tags))
    return sample


def _state_row(number: int, row: SampleRow) -> tuple[Any, ...]:
    valid = row.failure is None
    state = SAMPLE_STATE_PENDING if valid else SAMPLE_STATE_FAILED
    return number, row.sample, state, valid, None, 0, row.failure, None, None, 0
