"""The tables of a ledger, and the transactions on them.

Changes are committed together. A process that uses a ledger holds a lease and renews it. For processes of the
same machine the operating system is authoritative: a process is dead as soon as its process number is free or
reused. A live process whose lease expired (for example a suspended one) regains it with the next renewal.
Leases affect only counts.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dramaturg.database import StoreError
from dramaturg.database.database import Database, Leases, create_engine
from dramaturg.database.migrations import Schema, migrate
from services.generation.ledger.batches import BatchStore, WaitingRequest
from services.generation.ledger.batches import tables as batch_tables

LEASE_SECONDS = 30.0
"""The duration of a lease."""
RENEWAL_SECONDS = 10.0
"""The interval between renewals of a lease."""
_MIGRATION_RETRY_SECONDS = 5.0
MOST_LISTED = 1000
"""The maximum number of lost calls that a status lists. Its counts include all."""
Result = TypeVar("Result")

metadata = sa.MetaData()

completions = sa.Table(
    "dramaturg_completions",
    metadata,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    # Seconds since 1970, by the clock of the process that bought it.
    sa.Column("recorded_at", sa.Double, nullable=False),
    # JSON list: the calls that led to a usable answer, in order.
    sa.Column("purchases", sa.Text, nullable=False),
)
calls = sa.Table(
    "dramaturg_calls",
    metadata,
    sa.Column("process", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("sent_at", sa.Double, nullable=False),
    sa.Column("abandoned", sa.Boolean, nullable=False, server_default=sa.false()),
    # Answered, and the answer is not stored.
    sa.Column("unstored", sa.Boolean, nullable=False, server_default=sa.false()),
    # One tree in place of two: a row lives for the time of its call. Older files have two, and work alike.
    sqlite_with_rowid=False,
)
"""Calls that were sent, and not yet stored or settled."""
leases = sa.Table(
    "dramaturg_leases",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("machine", sa.Text, nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("started", sa.Text, nullable=False),
    # Microseconds since 1970, by the clock of the database.
    sa.Column("expires", sa.BigInteger, nullable=False),
)
"""The processes that use the ledger."""
batch_requests, batches = batch_tables(metadata)

SCHEMA = Schema(
    tables=metadata,
    revisions=Path(__file__).parent / "revisions",
    head="0002",
    oldest="0001",
    version_table="dramaturg_ledger_revision",
    former="dramaturg_ledger",
)
"""A change of the tables adds a revision and raises the head."""

_own_call = sa.and_(calls.c.process == sa.bindparam("own"), calls.c.number == sa.bindparam("one"))
_MARK_ABANDONED = calls.update().where(_own_call).values(abandoned=True)
_MARK_UNSTORED = calls.update().where(_own_call).values(unstored=True)
_SETTLE = calls.delete().where(_own_call)
_LOOK_UP = sa.select(completions.c.fingerprint, completions.c.purchases).where(
    completions.c.fingerprint.in_(sa.bindparam("fingerprints", expanding=True))
)
_LOOK_UP_ONE = sa.select(completions.c.purchases).where(completions.c.fingerprint == sa.bindparam("one"))
_NAMED = sqlite.dialect(paramstyle="named")
_SQLITE_SIZE = sa.text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
_POSTGRES_SIZE = sa.text(
    "SELECT sum(pg_total_relation_size(name::regclass))::bigint "
    "FROM unnest(ARRAY['dramaturg_completions', 'dramaturg_calls', 'dramaturg_leases', "
    "'dramaturg_batches', 'dramaturg_batch_requests']) AS name"
)


@dataclass(frozen=True, slots=True)
class Process:
    """A process that uses or used a ledger."""

    id: str
    machine: str
    """The boot id and the PID namespace of ``pid``. Empty: unknown."""
    pid: int
    started: str
    """The start time, which distinguishes processes with the same number."""

    @classmethod
    def this(cls) -> Process:
        """The current process, under a new id."""
        return cls(uuid.uuid4().hex, _machine(), os.getpid(), _started(os.getpid()))

    def is_dead(self, lease_left: float) -> bool:
        """Whether the process is dead, as seen from this machine.

        Args:
            lease_left: Seconds until its lease ends; negative afterwards.
        """
        if self.machine and self.machine == _machine():
            return _started(self.pid) != self.started
        return lease_left <= 0


def living(processes: Iterable[tuple[Process, float]]) -> frozenset[str]:
    """Returns the ids of live processes. Each process comes with the seconds left of its lease."""
    return frozenset(process.id for process, lease_left in processes if not process.is_dead(lease_left))


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux: leases decide
        return ""


def _started(pid: int) -> str:
    """The start time in ticks since boot (proc(5), field 22). Empty: no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]  # a zombie has ended and is not reaped yet


class LedgerError(RuntimeError):
    """The ledger cannot be opened; the message names the store and the reason."""


class LedgerUnavailableError(RuntimeError):
    """The store does not answer now, so it is unknown whether a completion is stored."""


class LedgerKind(Enum):
    """The storage of a ledger."""

    MEMORY = auto()
    """In memory; lost when the process ends."""
    SQLITE = auto()
    """In one SQLite file."""
    POSTGRESQL = auto()
    """In a database that several processes share."""


@dataclass(frozen=True, slots=True)
class LostCall:
    """A call that was charged twice if it was sent again: it has no recorded answer, or was sent again."""

    fingerprint: str
    """The call's."""
    sent_at: float
    """The time of sending, in seconds since 1970."""
    process: str
    """The id of the process that sent it."""
    abandoned: bool
    """Whether the process stopped waiting and lived on."""
    answered: bool = False
    """Whether it was answered, the answer was not stored, and the request was sent again. If neither, the
    process died."""


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """The contents of a ledger, as counts."""

    kind: LedgerKind
    completions: int
    size: int
    """The size of the store in bytes."""
    processes: int
    """The number of live processes that use the ledger."""
    under_way: int
    """Calls in flight: sent by live processes, and their answers are not yet stored."""
    lost: int
    """Calls sent by processes that died before the answer was recorded."""
    abandoned: int
    """Calls that a live process stopped waiting for: deadline, lost connection or cancelled caller."""
    bought_again: int
    """Calls whose answers were not stored and whose requests were sent again."""
    lost_calls: tuple[LostCall, ...]
    """The latest of these calls, latest first, at most [MOST_LISTED]."""
    unwritten: int = 0
    """Completions of this process whose commit is not acknowledged. Their callers wait."""


@dataclass(slots=True)
class SentCall:
    """A call that is about to be sent."""

    number: int
    """Its number in the process that sends it."""
    fingerprint: str
    sent_at: float
    """Seconds since 1970."""


@dataclass(slots=True)
class StoredCompletion:
    """A completion to store."""

    fingerprint: str
    recorded_at: float
    """Seconds since 1970."""
    purchases: str
    """As [records.to_text] writes them."""
    call_numbers: Collection[int]
    """The calls whose records end with it."""
    batch_requests: Collection[str] = ()
    """The fingerprints of the requests that waited for batches, and end with it."""


@dataclass(slots=True)
class Changes:
    """Changes of one process, in the order in which they were made."""

    sent: list[SentCall] = field(default_factory=list)
    stored: list[StoredCompletion] = field(default_factory=list)
    abandoned: set[int] = field(default_factory=set)
    """The numbers of calls to mark as abandoned."""
    unstored: set[int] = field(default_factory=set)
    """The numbers of answered calls to mark as not stored."""
    settled: set[int] = field(default_factory=set)
    """The numbers of calls whose records end."""
    asked: list[WaitingRequest] = field(default_factory=list)
    """Requests that wait for batches."""
    told: list[WaitingRequest] = field(default_factory=list)
    """Such requests with answers of no use."""

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits for the commit."""
        return bool(self.sent or self.stored or self.asked or self.told)

    @property
    def is_empty(self) -> bool:
        return not (self.is_awaited or self.abandoned or self.unstored or self.settled)

    def carry(self, failed: Changes) -> None:
        """Adds the changes of a failed transaction for which no caller waits."""
        self.abandoned |= failed.abandoned
        self.unstored |= failed.unstored
        self.settled |= failed.settled


def migrate_ledger(url: str) -> bool:
    """Creates and upgrades the tables of a ledger on PostgreSQL.

    Returns:
        Whether the address is of such a database.

    Raises:
        StoreError: The database is unavailable, or a newer release wrote the tables.
    """
    engine, name = create_engine(url, "ledger")
    database = Database(engine, name, _MIGRATION_RETRY_SECONDS)
    try:
        if not database.is_sqlite:
            migrate(database, SCHEMA)
        return not database.is_sqlite
    finally:
        database.close()


class LedgerStore:
    """The transactions of a ledger. Its methods block; at most two threads call them.

    Args:
        url: The database, as SQLAlchemy spells it.
        busy_seconds: How long a transaction waits for the lock of another process on a SQLite file.

    Raises:
        StoreError: The URL is not valid.
    """

    def __init__(self, url: str, busy_seconds: float) -> None:
        engine, name = create_engine(url, "ledger", busy_seconds=busy_seconds)
        # Every attempt is one transaction: the ledger waits between them, without a thread.
        self._database = Database(engine, name, retry_seconds=0)
        file = engine.url.database if self._database.is_sqlite else None
        self._file = None if file in {None, "", ":memory:"} else Path(file)
        insert = sqlite.insert if self._database.is_sqlite else postgresql.insert
        completion = insert(completions)
        self._store = completion.on_conflict_do_update(
            index_elements=["fingerprint"],
            set_={name: completion.excluded[name] for name in ("recorded_at", "purchases")},
        )
        # After a lost acknowledgement the transaction is repeated.
        self._record = insert(calls).on_conflict_do_nothing()
        self._leases = Leases(self._database, leases)
        self._quick: sqlite3.Connection | None = None
        """Of a SQLite file: waits for no lock, and has one thread."""
        self.batches = BatchStore(self._database, batch_requests, batches)

    @property
    def name(self) -> str:
        """The ledger in messages, without secrets."""
        return self._database.name

    @property
    def kind(self) -> LedgerKind:
        """The storage."""
        if not self._database.is_sqlite:
            return LedgerKind.POSTGRESQL
        return LedgerKind.MEMORY if self._file is None else LedgerKind.SQLITE

    def open(self, process: Process) -> int:
        """Creates or upgrades the tables, and begins the lease of a process. Returns as ``renew``.

        Raises:
            StoreError: The database cannot be used, or a later release wrote it.
        """
        if self._file is not None:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(f"the {self.name} is unavailable: {error}") from error
        self._run(lambda: migrate(self._database, SCHEMA))
        self._run(lambda: self._database.write_repeatable(self._forget_dead))
        if self._file is not None:
            self._quick = self._run(self._database.detached)
            self._quick.isolation_level = None  # no BEGIN but those below
            self._quick.execute("PRAGMA busy_timeout=0")
            # The renewals of the lease move pages from the log to the file: that waits for the disk.
            self._quick.execute("PRAGMA wal_autocheckpoint=0")
        return self.renew(process)

    def close(self) -> None:
        """Closes the connections."""
        if self._quick is not None:
            self._quick.close()
        self._database.close()

    def try_look_up(self, fingerprint: str) -> Sequence[str] | None:
        """Looks up the stored calls of a request in microseconds, on the thread of the caller.

        Returns:
            The calls as text, or nothing. None: this is no file of SQLite, or it cannot be read now.
        """
        if self._quick is None:
            return None
        try:
            found = self._quick.execute(_plain(_LOOK_UP_ONE, ())[0], {"one": fingerprint}).fetchall()
        except sqlite3.Error:
            return None
        return [purchases for (purchases,) in found]

    def try_write(self, process: str, changes: Changes) -> bool:
        """Writes as ``write``, in microseconds, on the thread of the caller.

        Returns:
            Whether they are written. False: this is no file of SQLite, another process has its lock, or it
            cannot be written now; ``write`` waits, and tells the error.
        """
        if self._quick is None:
            return False
        try:
            statements = [
                (*_plain(one, (*rows[0],)), rows) for one, rows in self._statements(process, changes)
            ]
            # A statement of one row is a transaction by itself.
            is_one = len(statements) == 1 and len(statements[0][2]) == 1
            if not is_one:
                self._quick.execute("BEGIN IMMEDIATE")
            for text, constants, rows in statements:
                self._quick.executemany(text, [constants | row for row in rows] if constants else rows)
            if not is_one:
                self._quick.execute("COMMIT")
        except Exception:  # a defect too: ``write`` tells it to all who wait
            return False
        finally:
            if self._quick.in_transaction:
                self._quick.rollback()
        return True

    def look_up(self, fingerprints: Sequence[str]) -> Mapping[str, str]:
        """Returns the stored calls of the requests that are found, as text."""

        def read(connection: sa.Connection) -> Mapping[str, str]:
            found = connection.execute(_LOOK_UP, {"fingerprints": fingerprints})
            return {row.fingerprint: row.purchases for row in found}

        return self._run(lambda: self._database.read(read))

    def write(self, process: str, changes: Changes) -> None:
        """Writes the changes of a process in one transaction. It may be repeated."""

        def work(connection: sa.Connection) -> None:
            for statement, rows in self._statements(process, changes):
                connection.execute(statement, rows)

        self._run(lambda: self._database.write_repeatable(work))

    def _statements(self, process: str, changes: Changes) -> Iterator[tuple[sa.Executable, list[Any]]]:
        """The statements that write changes, in order, with the rows of each."""
        if changes.sent:
            yield (
                self._record,
                [
                    {
                        "process": process,
                        "number": call.number,
                        "fingerprint": call.fingerprint,
                        "sent_at": call.sent_at,
                    }
                    for call in changes.sent
                ],
            )
        ended, settled = set[str](), {*changes.settled}
        if changes.stored:
            # The last completion of a request counts. All writers use one order, which avoids deadlocks.
            latest = {}
            for completion in changes.stored:
                latest[completion.fingerprint] = {
                    "fingerprint": completion.fingerprint,
                    "recorded_at": completion.recorded_at,
                    "purchases": completion.purchases,
                }
                ended.update(completion.batch_requests)
                settled.update(completion.call_numbers)
            yield self._store, [latest[fingerprint] for fingerprint in sorted(latest)]
        if changes.asked or changes.told or ended:
            yield from self.batches.changes(changes.asked, changes.told, ended)
        for statement, numbers in (
            (_MARK_ABANDONED, changes.abandoned),
            (_MARK_UNSTORED, changes.unstored),
            (_SETTLE, settled),
        ):
            if numbers:
                yield statement, [{"own": process, "one": number} for number in numbers]

    def renew(self, process: Process) -> int:
        """Renews the lease of a process.

        Returns:
            The live replicas, this one included. 1 for a SQLite file, whose processes are separate programs.
        """
        about = {"machine": process.machine, "pid": process.pid, "started": process.started}
        self._run(lambda: self._leases.renew(process.id, LEASE_SECONDS, **about))
        return 1 if self._database.is_sqlite else len(self._run(self._leases.live))

    def leave(self, process: Process) -> None:
        """Ends the lease of a process."""
        self._run(lambda: self._leases.drop(process.id))

    def status(self) -> LedgerStatus:
        """Counts completions and calls."""
        return self._run(lambda: self._database.read(self._status))

    def _status(self, connection: sa.Connection) -> LedgerStatus:
        def count(table: sa.FromClause, *conditions: sa.ColumnElement[bool]) -> int:
            return connection.execute(
                sa.select(sa.func.count()).select_from(table).where(*conditions)
            ).scalar_one()

        alive = living(self._processes(connection))
        is_alive = calls.c.process.in_(alive)
        is_silent = sa.and_(sa.not_(calls.c.abandoned), sa.not_(calls.c.unstored))
        again = _bought_again()
        lost = (
            sa.select(
                calls.c.fingerprint,
                calls.c.sent_at,
                calls.c.process,
                calls.c.abandoned,
                sa.false().label("answered"),
            )
            .where(sa.not_(calls.c.unstored), sa.or_(calls.c.abandoned, sa.not_(is_alive)))
            .union_all(sa.select(again, sa.false(), sa.true()))
            .order_by(sa.desc("sent_at"))
            .limit(MOST_LISTED)
        )
        size = _SQLITE_SIZE if self._database.is_sqlite else _POSTGRES_SIZE
        return LedgerStatus(
            kind=self.kind,
            completions=count(completions),
            size=connection.execute(size).scalar_one(),
            processes=len(alive),
            under_way=count(calls, is_silent, is_alive),
            lost=count(calls, is_silent, sa.not_(is_alive)),
            abandoned=count(calls, calls.c.abandoned),
            bought_again=count(again),
            lost_calls=tuple(
                LostCall(fingerprint, sent_at, process, bool(abandoned), bool(answered))
                for fingerprint, sent_at, process, abandoned, answered in connection.execute(lost)
            ),
        )

    def _processes(self, connection: sa.Connection) -> list[tuple[Process, float]]:
        return [
            (Process(row.id, row.machine, row.pid, row.started), seconds)
            for row, seconds in self._leases.remaining(connection)
        ]

    def is_dead(self, process: str) -> bool:
        """Whether a process that used the ledger is dead."""
        processes = self._run(lambda: self._database.read(self._processes))
        return process not in living(processes)

    def batch(self, work: Callable[[BatchStore], Result]) -> Result:
        """Returns what a transaction on batches returns."""
        return self._run(lambda: work(self.batches))

    def _forget_dead(self, connection: sa.Connection) -> None:
        # A process without a row counts as dead, so the rows of dead processes are deleted.
        processes = self._processes(connection)
        dead = {process.id for process, _ in processes} - living(processes)
        connection.execute(leases.delete().where(leases.c.id.in_(dead)))

    def _run(self, transaction: Callable[[], Result]) -> Result:
        try:
            return transaction()
        except sa.exc.SQLAlchemyError as error:
            cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            raise StoreError(f"the {self.name} cannot be used: {' '.join(str(cause).split())}") from error


@lru_cache(maxsize=64)
def _plain(statement: Any, names: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """A statement as the driver of SQLite takes it, and its parameters beside those of a row.

    Executed by SQLAlchemy, a statement takes ten times as long.

    Args:
        statement: The statement.
        names: The parameters of a row.
    """
    compiled = statement.compile(dialect=_NAMED, column_keys=names or None)
    return str(compiled), {name: value for name, value in compiled.params.items() if value is not None}


def _bought_again() -> sa.Subquery:
    """Answered calls that were sent again: a later call or a completion has the same fingerprint."""
    place = sa.func.row_number().over(partition_by=calls.c.fingerprint, order_by=calls.c.sent_at.desc())
    answered = (
        sa.select(calls.c.fingerprint, calls.c.sent_at, calls.c.process, place.label("place"))
        .where(calls.c.unstored)
        .subquery()
    )
    is_stored = answered.c.fingerprint.in_(sa.select(completions.c.fingerprint))
    return (
        sa.select(answered.c.fingerprint, answered.c.sent_at, answered.c.process)
        .where(sa.or_(answered.c.place > 1, is_stored))
        .subquery()
    )
