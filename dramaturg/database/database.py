"""Opens a database, runs transactions that are retried after a lost connection, and keeps leases.

A transaction that writes takes effect once, even if the acknowledgement of its commit is lost, see
``Database.write``.
"""

from __future__ import annotations

import fcntl
import os
import random
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache, partial, wraps
from pathlib import Path
from typing import IO, Any, Concatenate, Generic, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dramaturg.database import StoreError

metadata = sa.MetaData()

run_writers = sa.Table(
    "run_writers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    # The number of its last operation that was committed.
    sa.Column("operation", sa.BigInteger, nullable=False),
    # When that began, in seconds since 1970, by the clock of its process.
    sa.Column("time", sa.BigInteger, nullable=False),
)
"""The writers of all processes. Each operation is recorded in its own transaction, see ``Database.write``."""
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Owner = TypeVar("Owner", bound="Repository")
Work = Callable[[sa.Connection], Result]

WRITES = "dramaturg_writes"
"""The execution option of connections whose transactions write."""

_FIRST_WAIT_SECONDS = 0.05
_MAX_WAIT_SECONDS = 1.0
_BUSY_SECONDS = 30
_POOL_SIZE = 8
_IN_MEMORY = (None, "", ":memory:")
_CONNECT_SECONDS = 5
_WRITER_RETENTION_SECONDS = 7 * 24 * 3600

# SQLSTATE classes and codes (PostgreSQL, appendix A) of transient errors: connection exceptions, transaction
# rollbacks (deadlock, serialisation), a server that stops or starts, no free connection.
_TRANSIENT_STATES = ("08", "40", "57P", "53300")


def create_engine(
    url: str, purpose: str = "run store", *, busy_seconds: float = _BUSY_SECONDS
) -> tuple[sa.Engine, str]:
    """The connection pool of a database, and its name for messages, without the password.

    Connects to nothing yet.

    Args:
        url: ``sqlite:///FILE``, ``sqlite://`` (in memory, over a single connection) or PostgreSQL.
        purpose: The noun of the database in messages.
        busy_seconds: How long a transaction waits for a free connection, or for the lock of a SQLite file.

    Raises:
        StoreError: The URL is invalid, or names another kind of database.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise StoreError(
            f"the address of the {purpose} is not a URL, for example sqlite:///store.sqlite3"
        ) from error
    # Parameters of PostgreSQL may be secrets too.
    name = f"{purpose} {parsed.set(query={}).render_as_string(hide_password=True)}"
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _sqlite(parsed, busy_seconds), name
    if backend in {"postgresql", "postgres"}:
        return _postgres(parsed, busy_seconds), name
    raise StoreError(f"the {name} is on {backend}; supported are SQLite and PostgreSQL")


def lock_file(engine: sa.Engine, name: str) -> IO[str]:
    """Locks a SQLite store for this process until the returned file, beside the store, is closed.

    Raises:
        StoreError: The store is in memory, another process has it open, or the folder is not writable.
    """
    if engine.url.database in _IN_MEMORY:
        raise StoreError(f"the {name} names no file")
    path = Path(f"{engine.url.database}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"the {name} is unavailable: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read().strip()
        lock.close()
        raise StoreError(
            f"the {name} is in use{f' by process {owner}' if owner else ''}: "
            "a SQLite file serves one gateway at a time; several share a store on PostgreSQL (postgresql://...)"
        ) from error
    # The number is for the message above alone: a full disk has no room for it.
    with suppress(OSError):
        lock.truncate(0)
        os.write(lock.fileno(), f"{os.getpid()}\n".encode())
    return lock


@dataclass
class _Writer:
    """A row of ``run_writers``. One operation at a time uses it."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    operation: int = 0


class _Operation(Generic[Result]):
    """The work of a transaction that takes effect once, however often it is attempted.

    Args:
        work: The work.
        writer: Numbers the operation, and is used by no other until this one ends.
    """

    def __init__(self, work: Work[Result], writer: _Writer) -> None:
        writer.operation += 1
        self.writer = writer
        self.is_committing = False
        """Whether the last attempt came to its commit, so that an error leaves its outcome unknown."""
        self._work = work
        self._results: list[Result] = []

    def __call__(self, connection: sa.Connection) -> Result:
        self.is_committing = False
        if self._begin(connection):
            self._results[:] = [self._work(connection)]
        # Else an earlier attempt was committed: the last one that came to its commit.
        self.is_committing = True
        return self._results[0]

    def _begin(self, connection: sa.Connection) -> bool:
        """Records the operation in its own transaction. Returns False if an earlier attempt was committed.

        Waits for an earlier attempt whose commit is in progress, which holds the row.
        """
        now = int(time.time())
        values = {"writer": self.writer.id, "number": self.writer.operation, "now": now}
        begun = connection.execute(_begin_statement(connection.dialect.name), values).first() is not None
        if self.writer.operation == 1:
            old = run_writers.c.time < now - _WRITER_RETENTION_SECONDS
            connection.execute(run_writers.delete().where(old))
        return begun


@cache
def _begin_statement(dialect: str) -> Any:
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    new = insert(run_writers).values(
        id=sa.bindparam("writer"), operation=sa.bindparam("number"), time=sa.bindparam("now")
    )
    return new.on_conflict_do_update(
        index_elements=["id"],
        set_={"operation": new.excluded.operation, "time": new.excluded.time},
        where=run_writers.c.operation < new.excluded.operation,
    ).returning(run_writers.c.id)


class Database:
    """Runs transactions.

    Args:
        engine: The connection pool.
        name: The database in messages, without secrets.
        retry_seconds: How long a transaction is retried whose connection was lost.
    """

    def __init__(self, engine: sa.Engine, name: str, retry_seconds: float) -> None:
        self._engine = engine
        self._writing_engine = engine.execution_options(**{WRITES: True})
        self._retry_seconds = retry_seconds
        self.name = name
        self._writers = deque[_Writer]()
        # SQLite has one writer at a time, and waiters in its busy handler sleep for up to 100 ms too long.
        self._write_lock: AbstractContextManager[object] = (
            threading.Lock() if engine.dialect.name == "sqlite" else nullcontext()
        )

    @property
    def url(self) -> str:
        """The address of the database, with its password."""
        return self._engine.url.render_as_string(hide_password=False)

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a SQLite file."""
        return self._engine.dialect.name == "sqlite"

    def read(self, work: Work[Result]) -> Result:
        """Runs a transaction that only reads.

        Raises:
            StoreError: The database is unavailable.
        """
        return self._retry(partial(self._once, self._engine, work))

    def write(self, work: Work[Result]) -> Result:
        """Runs a transaction and commits it, or rolls it back.

        The work may run more than once, and takes effect once: if the acknowledgement of a commit is lost,
        the next attempt finds the operation committed, and the result is that of the committed attempt.

        Raises:
            StoreError: The database is unavailable. Whether the work took effect may be unknown; ``repeat``
                completes the same operation.
        """
        try:
            writer = self._writers.pop()
        except IndexError:
            writer = _Writer()
        return self._complete(_Operation(work, writer))

    def write_repeatable(self, work: Work[Result]) -> Result:
        """Runs a transaction and commits it, or rolls it back.

        It may take effect twice, which the work must permit: if the acknowledgement of a commit is lost, the
        next attempt does the work again.

        Raises:
            StoreError: The database is unavailable.
        """
        return self._retry(partial(self._once, self._writing_engine, work))

    def now(self, connection: sa.Connection) -> int:
        """The time of the clock that all users of the database share, in microseconds since 1970."""
        if self.is_sqlite:  # all processes are on one machine
            return time.time_ns() // 1000
        seconds = connection.execute(
            sa.select(sa.func.extract("epoch", sa.func.clock_timestamp()))
        ).scalar_one()
        return int(seconds * 1_000_000)

    def detached(self) -> Any:
        """A connection of the driver, which the pool does not know any more. The caller closes it."""
        pooled = self._engine.raw_connection()
        connection = pooled.driver_connection
        pooled.detach()
        return connection

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()

    def _complete(self, operation: _Operation[Result]) -> Result:
        def once() -> Result:
            with self._write_lock:
                return self._once(self._writing_engine, operation)

        try:
            result = self._retry(once, lambda: operation.is_committing)
        except StoreError as error:
            # The writer stays with the operation: its row is what tells whether it was committed.
            error.repeat = partial(self._complete, operation)
            raise
        except BaseException:
            self._writers.append(operation.writer)
            raise
        self._writers.append(operation.writer)
        return result

    @staticmethod
    def _once(engine: sa.Engine, work: Work[Result]) -> Result:
        with engine.begin() as connection:
            return work(connection)

    def _retry(self, once: Callable[[], Result], is_committing: Callable[[], bool] = lambda: False) -> Result:
        give_up = time.monotonic() + self._retry_seconds
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                return once()
            except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
                if isinstance(error, sa.exc.IntegrityError | sa.exc.ProgrammingError | sa.exc.DataError):
                    raise  # a defect of the program, not of the database
                is_transient = is_committing() or self._is_transient(error)
                if not is_transient or time.monotonic() + wait > give_up:
                    failure = StoreError(f"the {self.name} is unavailable: {_reason(error)}")
                    failure.is_transient = is_transient
                    raise failure from error
            time.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads replicas, guards nothing
            wait = min(2 * wait, _MAX_WAIT_SECONDS)

    def _is_transient(self, error: sa.exc.DBAPIError | sa.exc.TimeoutError) -> bool:
        if self.is_sqlite:
            return False
        if isinstance(error, sa.exc.TimeoutError):  # every connection of the pool is in use
            return True
        state = getattr(error.orig, "sqlstate", None)
        # Without a state no server answered.
        return error.connection_invalidated or state is None or str(state).startswith(_TRANSIENT_STATES)


class Repository:
    """Methods on a group of tables. They block and are thread-safe.

    A method with the decorator ``reading``, ``writing`` or ``inserting`` is one transaction. It is declared
    with the connection of the transaction, called without it, and raises StoreError if the database is
    unavailable.

    Args:
        database: The database of the tables.
    """

    def __init__(self, database: Database) -> None:
        self._database = database


def reading(
    method: Callable[Concatenate[Owner, sa.Connection, Parameters], Result],
) -> Callable[Concatenate[Owner, Parameters], Result]:
    """Makes a method of a repository a transaction that only reads, see ``Database.read``."""

    @wraps(method)
    def read(self: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return self._database.read(lambda connection: method(self, connection, *args, **kwargs))

    return read


def writing(
    method: Callable[Concatenate[Owner, sa.Connection, Parameters], Result],
) -> Callable[Concatenate[Owner, Parameters], Result]:
    """Makes a method of a repository a transaction that takes effect once, see ``Database.write``."""

    @wraps(method)
    def write(self: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return self._database.write(lambda connection: method(self, connection, *args, **kwargs))

    return write


def inserting(
    method: Callable[Concatenate[Owner, sa.Connection, Parameters], Result],
) -> Callable[Concatenate[Owner, Parameters], Result]:
    """As ``writing``, for a method that returns the existing row in place of a second one.

    It is repeated where another process inserted that row after this one looked for it.
    """
    write = writing(method)

    @wraps(write)
    def insert_or_find(self: Owner, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return write(self, *args, **kwargs)
        except sa.exc.IntegrityError:
            return write(self, *args, **kwargs)

    return insert_or_find


def insert(connection: sa.Connection, table: sa.Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Inserts many rows, each with a value for every column of the table, in the order of the columns.

    The values go to the driver unconverted, since the conversion by SQLAlchemy takes longer than the insert.
    Texts of callers must be sanitized before (``tables.sanitize``).
    """
    if rows:
        connection.exec_driver_sql(_insert_statement(table, connection.dialect.paramstyle), list(rows))


@cache
def _insert_statement(table: sa.Table, paramstyle: str) -> str:
    mark = "?" if paramstyle == "qmark" else "%s"
    columns = ", ".join(table.c.keys())
    return f"INSERT INTO {table.name} ({columns}) VALUES ({', '.join([mark] * len(table.c))})"  # noqa: S608


def _sqlite(url: sa.URL, busy_seconds: float) -> sa.Engine:
    if url.database in _IN_MEMORY:
        pool: Mapping[str, Any] = {"poolclass": sa.StaticPool}
    else:
        pool = {"pool_size": _POOL_SIZE, "max_overflow": -1}
    engine = sa.create_engine(
        url.set(drivername="sqlite"),
        connect_args={"check_same_thread": False, "timeout": busy_seconds},
        **pool,
    )

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, record: object) -> None:
        del record
        connection.isolation_level = None  # transactions begin below, not in the driver
        use_wal(connection, busy_seconds)
        for setting in ("synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {setting}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # A reader that turns writer fails with SQLITE_BUSY_SNAPSHOT, which no wait resolves.
        statement = "BEGIN IMMEDIATE" if connection.get_execution_options().get(WRITES) else "BEGIN"
        # By the driver: every transaction begins here, and ``exec_driver_sql`` takes half of its time.
        try:
            connection.connection.driver_connection.execute(statement)  # type: ignore[union-attr]
        except sqlite3.Error as error:
            raise sa.exc.DBAPIError.instance(
                statement, (), error, sqlite3.Error, dialect=connection.dialect
            ) from error

    return engine


def use_wal(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Sets the journal mode of a file, which a new one does not have yet.

    SQLite fails at once, without its own wait, where another connection writes or changes the mode meanwhile.

    Args:
        connection: A connection without a transaction.
        busy_seconds: How long to wait for the other connection.

    Raises:
        sqlite3.OperationalError: The file is still in use after that time, or is no database.
    """
    give_up = time.monotonic() + busy_seconds
    is_set = False
    while not is_set:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            is_set = True
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > give_up:
                raise
            time.sleep(_FIRST_WAIT_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311 - spreads processes


def _postgres(url: sa.URL, busy_seconds: float) -> sa.Engine:
    return sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={"connect_timeout": _CONNECT_SECONDS, "fallback_application_name": "dramaturg"},
        pool_size=_POOL_SIZE,
        max_overflow=0,
        pool_timeout=busy_seconds,
        pool_recycle=1800,
    )


def _reason(error: sa.exc.DBAPIError | sa.exc.TimeoutError) -> str:
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return " ".join(str(cause).split())


_RETENTION_MICROSECONDS = 7 * 24 * 3600 * 1_000_000


class Leases(Repository):
    """The leases of a table, one for each process.

    Every method may take effect twice without harm.

    Args:
        database: The database of the table.
        table: Has the columns ``id`` (text, the key) and ``expires`` (microseconds since 1970 by the clock of
            the database), and any others, which describe a process and never change.
    """

    def __init__(self, database: Database, table: sa.Table) -> None:
        super().__init__(database)
        self._table = table
        new = (sqlite.insert if database.is_sqlite else postgresql.insert)(table)
        self._renew = new.on_conflict_do_update(index_elements=["id"], set_={"expires": new.excluded.expires})

    def renew(self, lease_id: str, seconds: float, **about: Any) -> None:
        """Begins a lease, or extends it to ``seconds`` from now. Removes those that expired a week ago.

        Args:
            lease_id: The id of the process.
            seconds: The duration.
            about: The values of the other columns.
        """

        def work(connection: sa.Connection) -> None:
            now = self._database.now(connection)
            expires = now + int(seconds * 1_000_000)
            connection.execute(self._renew, {"id": lease_id, "expires": expires, **about})
            old = self._table.c.expires < now - _RETENTION_MICROSECONDS
            connection.execute(self._table.delete().where(old))

        self._database.write_repeatable(work)

    def drop(self, *lease_ids: str) -> None:
        """Ends leases."""
        ended = self._table.delete().where(self._table.c.id.in_(lease_ids))
        self._database.write_repeatable(lambda connection: connection.execute(ended))

    @reading
    def live(self, connection: sa.Connection) -> Sequence[str]:
        """The ids of the leases that have not expired, sorted."""
        columns = self._table.c
        query = sa.select(columns.id).where(columns.expires > self._database.now(connection))
        return connection.execute(query.order_by(columns.id)).scalars().all()

    def remaining(self, connection: sa.Connection) -> Sequence[tuple[sa.Row[*tuple[Any, ...]], float]]:
        """All rows, each with the seconds until it expires, negative afterwards. Part of a transaction."""
        now = self._database.now(connection)
        return [(row, (row.expires - now) / 1e6) for row in connection.execute(sa.select(self._table))]
