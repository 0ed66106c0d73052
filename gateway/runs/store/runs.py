"""Runs in the tables: created, read, changed and deleted.

Functions that take a connection are part of a transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_OUTCOME_UNSPECIFIED,
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    DatasetManifest,
    RunIncident,
    RunOutcome,
    RunSpec,
    RunState,
)
from dramaturg.database.database import Repository, inserting, reading, writing
from gateway.runs.records import ACTIVE, Event, Incident, NewRun, RunRecord
from gateway.runs.store import throughput
from gateway.runs.store.codec import RUN_COLUMNS, pack, run_record, unpack
from gateway.runs.store.errors import RequestIdReusedError
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
_MAX_DESCRIPTION_LENGTH = 500
_WORKING = frozenset({RUN_STATE_PREPARING, RUN_STATE_RUNNING})

# Built once: watchers of runs ask continuously.
_NEWEST_EVENTS = sa.select(
    runs.c.state_cursor,
    runs.c.state_time,
    runs.c.progress_cursor,
    runs.c.progress_time,
).where(IS_WANTED)
_THROUGHPUT = sa.select(runs.c.throughput, runs.c.state).where(IS_WANTED)


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


def find(connection: sa.Connection, run_id: str, tenant: str | None = None) -> RunRecord | None:
    """See ``Runs.get``."""
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


def replace_spec(connection: sa.Connection, number: int, spec: RunSpec) -> None:
    """Replaces the spec and labels of a run."""
    row = run_specs.update().where(run_specs.c.run == number)
    connection.execute(row.values(spec=spec.SerializeToString()))
    connection.execute(run_labels.delete().where(run_labels.c.run == number))
    _set_labels(connection, number, spec)


class Runs(Repository):
    """The runs, their specs, states and progress.

    A method with a tenant treats the runs of other tenants as absent.
    """

    @inserting
    def create(self, connection: sa.Connection, run: NewRun) -> tuple[RunRecord, bool]:
        """Creates a run in RUN_STATE_PREPARING. Returns it, and whether it is new.

        A request id that the tenant used with an equal spec and content returns the existing run.

        Raises:
            RequestIdReusedError: The request id was used with another spec.
        """
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
            "creator": run.creator,
            "create_time": created,
            "update_time": created,
            "state_time": created,
        }
        number = connection.execute(runs.insert().values(values).returning(runs.c.number)).scalar_one()
        connection.execute(
            run_specs.insert().values(
                run=number, spec=run.spec.SerializeToString(), content=pack(run.content)
            )
        )
        _set_labels(connection, number, run.spec)
        return required(connection, run.id), True

    @reading
    def get(self, connection: sa.Connection, run_id: str, tenant: str | None = None) -> RunRecord | None:
        """The run, of any tenant if none is given; None if it does not exist."""
        return find(connection, run_id, tenant)

    @reading
    def page(
        self,
        connection: sa.Connection,
        tenant: str | None,
        *,
        limit: int,
        before: tuple[datetime, str] | None = None,
        states: Collection[RunState.ValueType] = (),
        labels: Mapping[str, str] | None = None,
        ids: Collection[str] = (),
    ) -> Sequence[RunRecord]:
        """Runs, the newest first, older than ``before`` (creation time and id of the last one seen).

        Restricted to runs in one of the states and with one of the ids, if any is given, and with all of the
        labels.
        """
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
        for key, value in (labels or {}).items():
            labelled = sa.exists().where(
                run_labels.c.run == runs.c.number, run_labels.c.key == key, run_labels.c.value == value
            )
            query = query.where(labelled)
        return [run_record(row) for row in connection.execute(query)]

    @reading
    def active(self, connection: sa.Connection) -> Sequence[RunRecord]:
        """The preparing, running and paused runs of all tenants."""
        query = _SELECT.where(runs.c.state.in_(ACTIVE)).order_by(runs.c.number)
        return [run_record(row) for row in connection.execute(query)]

    @reading
    def has_active(self, connection: sa.Connection) -> bool:
        """Whether there are such runs."""
        return connection.execute(_ANY_ACTIVE).first() is not None

    @reading
    def content(self, connection: sa.Connection, run_id: str) -> bytes:
        """The rows that the request of a run carried."""
        query = sa.select(run_specs.c.content).join_from(run_specs, runs).where(runs.c.id == run_id)
        return unpack(connection.execute(query).scalar_one())

    @writing
    def change_state(
        self,
        connection: sa.Connection,
        run_id: str,
        to: RunState.ValueType,
        *,
        expected: Collection[RunState.ValueType],
        attempt: int | None = None,
        reason: str = "",
        outcome: RunOutcome.ValueType = RUN_OUTCOME_UNSPECIFIED,
    ) -> RunRecord | None:
        """Changes the state if it is one of those expected and the attempt, if given, is the current one.

        Records a "state" event. Sets the start time at the first RUNNING and the end time at an ended state.

        Returns:
            The run after the change; None if nothing was changed.
        """
        clock = self._database.now(connection)
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

    @writing
    def update_spec(
        self, connection: sa.Connection, run_id: str, spec: RunSpec, *, expected: RunSpec | None = None
    ) -> RunRecord | None:
        """Replaces the spec and records a "state" event.

        Returns:
            The run after the change; None if the run has another spec than the expected one.
        """
        row = lock(connection, run_id)
        if row is None:
            raise KeyError(run_id)
        if expected is not None and required(connection, run_id).spec != expected:
            return None
        replace_spec(connection, row.number, spec)
        change(connection, row.number, **state_event(row))
        return required(connection, run_id)

    @writing
    def set_manifest(self, connection: sa.Connection, run_id: str, manifest: DatasetManifest) -> None:
        """Stores the manifest of the dataset."""
        row = lock(connection, run_id)
        if row is not None:
            spec = run_specs.update().where(run_specs.c.run == row.number)
            connection.execute(spec.values(manifest=manifest.SerializeToString()))
            change(connection, row.number, **progress_event(row))

    @writing
    def begin_preparation(self, connection: sa.Connection, run_id: str) -> int:
        """Records that a dataset is about to be read.

        Returns:
            How many times its reading was begun without an end since a row was last added, this one included.
        """
        row = lock(connection, run_id)
        if row is None:
            return 0
        begun: int = row.preparations + 1
        connection.execute(runs.update().where(runs.c.number == row.number).values(preparations=begun))
        return begun

    @writing
    def end_preparation(self, connection: sa.Connection, run_id: str) -> None:
        """Records that the reading of a dataset ended, whether successfully or not."""
        connection.execute(runs.update().where(runs.c.id == run_id).values(preparations=0))

    @writing
    def report_incident(
        self, connection: sa.Connection, run_id: str, attempt: int, incident: Incident
    ) -> None:
        """Stores the failures of a preparing or running run, and records a "progress" event.

        Counts are added to those reported before. The incident ends with the next sample that succeeds and is
        not degraded, and with each change of the state.
        """
        run = lock(connection, run_id)
        if run is None or run.attempt != attempt or run.state not in _WORKING:
            return
        current = now()
        stored = RunIncident.FromString(run.incident or b"")
        began = current - timedelta(seconds=incident.lasted)
        # Several gateways report: the incident began with the first of them.
        if not stored.HasField("begin_time") or began < stored.begin_time.ToDatetime(current.tzinfo):
            stored.begin_time.FromDatetime(began)
        stored.description = _line(incident.description)
        stored.failed_attempt_count += incident.failures
        stored.ClearField("next_attempt_time")
        if incident.wait is not None:
            stored.next_attempt_time.FromDatetime(current + timedelta(seconds=incident.wait))
        change(connection, run.number, incident=stored.SerializeToString(), **progress_event(run))

    @reading
    def events_after(
        self, connection: sa.Connection, run_id: str, cursor: int, limit: int
    ) -> Sequence[Event]:
        """Events above the cursor, in order.

        Only the newest of each kind: an event refers to the current state of the run.
        """
        row = connection.execute(_NEWEST_EVENTS, {"wanted": run_id}).one_or_none()
        if row is None:
            return ()
        events = (
            Event(row.state_cursor, row.state_time, "state"),
            Event(row.progress_cursor, row.progress_time, "progress"),
        )
        return sorted((event for event in events if event.cursor > cursor), key=lambda event: event.cursor)[
            :limit
        ]

    @reading
    def rate(self, connection: sa.Connection, run_id: str, seconds: float) -> float | None:
        """Samples per second over the last ``seconds``; None if unknown, or the run is not running."""
        clock = self._database.now(connection)
        row = connection.execute(_THROUGHPUT, {"wanted": run_id}).one_or_none()
        if row is None or row.state != RUN_STATE_RUNNING:
            return None
        return throughput.rate(row.throughput, clock, seconds)

    def delete(self, run_id: str) -> None:
        """Deletes the run: hides it in one transaction, then deletes its rows in bounded ones."""
        self.hide(run_id)
        while self.purge():
            pass

    @writing
    def hide(self, connection: sa.Connection, run_id: str) -> None:
        """Marks a run as deleted: no method finds it, and its request id is free again."""
        row = lock(connection, run_id)
        if row is not None:
            hidden = runs.update().where(runs.c.number == row.number)
            connection.execute(hidden.values(deleted=True, request_id=None))

    @writing
    def purge(self, connection: sa.Connection) -> bool:
        """Deletes a bounded number of rows of hidden runs. Returns whether rows may be left.

        Completes deletions that were interrupted.
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


def _line(text: str) -> str:
    """A text from any source as one printable line of bounded length."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= _MAX_DESCRIPTION_LENGTH else f"{line[:_MAX_DESCRIPTION_LENGTH]}..."
