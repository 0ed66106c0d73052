"""Runs in the tables: created, read, changed and deleted. Each function is part of a transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    DatasetManifest,
    RunOutcome,
    RunSpec,
    RunState,
)
from gateway.runs.records import ACTIVE, NewRun, RunRecord
from gateway.runs.store import throughput
from gateway.runs.store.base import RequestIdReusedError
from gateway.runs.store.codec import RUN_COLUMNS, pack, run_record, unpack
from gateway.runs.store.tables import RUN_PARTS, run_labels, run_specs, runs, sanitize

IS_WANTED = (runs.c.id == sa.bindparam("wanted")) & runs.c.deleted.is_(False)
"""Selects the run of the parameter "wanted"."""

_SAMPLES_PER_DELETE = 1000

# Built once: these queries run continuously.
_SELECT = sa.select(*RUN_COLUMNS).join_from(runs, run_specs).where(runs.c.deleted.is_(False))
_FIND = _SELECT.where(IS_WANTED)
_LOCK = sa.select(runs).where(IS_WANTED).with_for_update()
_NUMBER = sa.select(runs.c.number).where(IS_WANTED)
_ANY_ACTIVE = sa.select(runs.c.number).where(runs.c.state.in_(ACTIVE), runs.c.deleted.is_(False)).limit(1)


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


def number_of(connection: sa.Connection, run_id: str) -> int | None:
    """The row number of a run; None if it does not exist."""
    return connection.execute(_NUMBER, {"wanted": run_id}).scalar_one_or_none()


def lock(connection: sa.Connection, run_id: str) -> sa.Row[*tuple[Any, ...]] | None:
    """The row of a run, locked until the end of the transaction; None if it does not exist."""
    return connection.execute(_LOCK, {"wanted": run_id}).one_or_none()


def change(connection: sa.Connection, number: int, **values: Any) -> None:
    """Changes the row of a run and its update time."""
    connection.execute(runs.update().where(runs.c.number == number).values(update_time=now(), **values))


def state_event(row: sa.Row[*tuple[Any, ...]]) -> dict[str, Any]:
    """The values that record a "state" event."""
    return {"cursor": row.cursor + 1, "state_cursor": row.cursor + 1, "state_time": now()}


def progress_event(row: sa.Row[*tuple[Any, ...]]) -> dict[str, Any]:
    """The values that record a "progress" event."""
    return {"cursor": row.cursor + 1, "progress_cursor": row.cursor + 1, "progress_time": now()}


def create(connection: sa.Connection, run: NewRun) -> tuple[RunRecord, bool]:
    """See ``RunStore.create_run``."""
    digest = hashlib.sha256(run.spec.SerializeToString(deterministic=True) + b"\0" + run.content).digest()
    same = runs.c.id == run.id
    if run.request_id:
        same |= (runs.c.tenant == run.tenant) & (runs.c.request_id == run.request_id)
    found = connection.execute(_SELECT.where(same)).one_or_none()
    if found is not None:
        if found.digest != digest:
            raise RequestIdReusedError(f"the request id {run.request_id!r} was used for another run")
        return run_record(found), False
    created = now()
    values = {
        "id": run.id,
        "tenant": run.tenant,
        "request_id": run.request_id or None,
        "digest": digest,
        "state": RUN_STATE_PREPARING,
        "version": run.version,
        "create_time": created,
        "update_time": created,
        "state_time": created,
    }
    number = connection.execute(runs.insert().values(values).returning(runs.c.number)).scalar_one()
    connection.execute(
        run_specs.insert().values(run=number, spec=run.spec.SerializeToString(), content=pack(run.content))
    )
    _set_labels(connection, number, run.spec)
    return required(connection, run.id), True


def find(connection: sa.Connection, run_id: str, tenant: str | None = None) -> RunRecord | None:
    """See ``RunStore.get_run``."""
    row = connection.execute(_FIND, {"wanted": run_id}).one_or_none()
    return None if row is None or tenant not in {None, row.tenant} else run_record(row)


def required(connection: sa.Connection, run_id: str) -> RunRecord:
    """The run.

    Raises:
        KeyError: It does not exist.
    """
    found = find(connection, run_id)
    if found is None:
        raise KeyError(run_id)
    return found


def list_runs(
    connection: sa.Connection,
    tenant: str | None,
    *,
    limit: int,
    before: tuple[datetime, str] | None,
    states: Collection[RunState.ValueType],
    labels: Mapping[str, str],
    ids: Collection[str],
) -> Sequence[RunRecord]:
    """See ``RunStore.list_runs``."""
    query = _SELECT.order_by(runs.c.create_time.desc(), runs.c.id.desc()).limit(limit)
    if tenant is not None:
        query = query.where(runs.c.tenant == tenant)
    if before is not None:
        created, run_id = before
        older = runs.c.create_time < created
        query = query.where(older | ((runs.c.create_time == created) & (runs.c.id < run_id)))
    if states:
        query = query.where(runs.c.state.in_(states))
    if ids:
        query = query.where(runs.c.id.in_(ids))
    for key, value in labels.items():
        labelled = sa.exists().where(
            run_labels.c.run == runs.c.number, run_labels.c.key == key, run_labels.c.value == value
        )
        query = query.where(labelled)
    return [run_record(row) for row in connection.execute(query)]


def list_active(connection: sa.Connection) -> Sequence[RunRecord]:
    """See ``RunStore.active_runs``."""
    query = _SELECT.where(runs.c.state.in_(ACTIVE)).order_by(runs.c.number)
    return [run_record(row) for row in connection.execute(query)]


def has_active(connection: sa.Connection) -> bool:
    """See ``RunStore.has_active_runs``."""
    return connection.execute(_ANY_ACTIVE).first() is not None


def content(connection: sa.Connection, run_id: str) -> bytes:
    """See ``RunStore.content``."""
    query = sa.select(run_specs.c.content).join_from(run_specs, runs).where(runs.c.id == run_id)
    return unpack(connection.execute(query).scalar_one())


def begin_preparation(connection: sa.Connection, run_id: str) -> int:
    """See ``RunStore.begin_preparation``."""
    row = lock(connection, run_id)
    if row is None:
        return 0
    begun: int = row.preparations + 1
    connection.execute(runs.update().where(runs.c.number == row.number).values(preparations=begun))
    return begun


def end_preparation(connection: sa.Connection, run_id: str) -> None:
    """See ``RunStore.end_preparation``."""
    connection.execute(runs.update().where(runs.c.id == run_id).values(preparations=0))


def set_manifest(connection: sa.Connection, run_id: str, manifest: DatasetManifest) -> None:
    """See ``RunStore.set_manifest``."""
    row = lock(connection, run_id)
    if row is not None:
        spec = run_specs.update().where(run_specs.c.run == row.number)
        connection.execute(spec.values(manifest=manifest.SerializeToString()))
        change(connection, row.number, **progress_event(row))


def change_state(
    connection: sa.Connection,
    clock: int,
    run_id: str,
    to: RunState.ValueType,
    *,
    expected: Collection[RunState.ValueType],
    attempt: int | None,
    reason: str,
    outcome: RunOutcome.ValueType,
) -> RunRecord | None:
    """See ``RunStore.change_state``; ``clock`` is the time of the store in microseconds."""
    row = lock(connection, run_id)
    if row is None or row.state not in expected or (attempt is not None and row.attempt != attempt):
        return None
    # An incident belongs to the state in which it occurred.
    values: dict[str, Any] = {
        "state": to,
        "state_reason": reason,
        "outcome": outcome,
        "incident": None,
        **state_event(row),
    }
    if to == RUN_STATE_RUNNING:
        values["start_time"] = row.start_time or now()
        values["throughput"] = throughput.start(clock, row.succeeded + row.failed)
    values["end_time"] = None if to in ACTIVE else now()
    change(connection, row.number, **values)
    return required(connection, run_id)


def update_spec(
    connection: sa.Connection, run_id: str, spec: RunSpec, expected: RunSpec | None
) -> RunRecord | None:
    """See ``RunStore.update_spec``."""
    row = lock(connection, run_id)
    if row is None:
        raise KeyError(run_id)
    if expected is not None and required(connection, run_id).spec != expected:
        return None
    replace_spec(connection, row.number, spec)
    change(connection, row.number, **state_event(row))
    return required(connection, run_id)


def replace_spec(connection: sa.Connection, number: int, spec: RunSpec) -> None:
    """Replaces the spec and labels of a run."""
    row = run_specs.update().where(run_specs.c.run == number)
    connection.execute(row.values(spec=spec.SerializeToString()))
    connection.execute(run_labels.delete().where(run_labels.c.run == number))
    _set_labels(connection, number, spec)


def hide(connection: sa.Connection, run_id: str) -> None:
    """Marks a run as deleted: no method finds it, and its request id is free again."""
    row = lock(connection, run_id)
    if row is not None:
        hidden = runs.update().where(runs.c.number == row.number)
        connection.execute(hidden.values(deleted=True, request_id=None))


def purge(connection: sa.Connection) -> bool:
    """Deletes a bounded number of rows of a run that is marked as deleted, by any process.

    Returns:
        Whether rows may be left.
    """
    query = sa.select(runs.c.number).where(runs.c.deleted).limit(1)
    number = connection.execute(query.with_for_update(skip_locked=True)).scalar_one_or_none()
    if number is None:
        return False
    for table in RUN_PARTS:
        mine = table.c.run == number
        if "sample" not in table.c:
            connection.execute(table.delete().where(mine))
            continue
        first = connection.execute(sa.select(sa.func.min(table.c.sample)).where(mine)).scalar_one()
        if first is not None:
            connection.execute(table.delete().where(mine, table.c.sample < first + _SAMPLES_PER_DELETE))
            return True
    connection.execute(runs.delete().where(runs.c.number == number))
    return True


def _set_labels(connection: sa.Connection, number: int, spec: RunSpec) -> None:
    # Keys that differ only in a U+0000 become one (see tables.SanitizedText).
    labels = {sanitize(key): value for key, value in spec.labels.items()}
    if labels:
        rows = [{"run": number, "key": key, "value": value} for key, value in labels.items()]
        connection.execute(run_labels.insert(), rows)
