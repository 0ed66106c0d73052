"""The run store, on SQLite or PostgreSQL."""

from __future__ import annotations

from functools import cache
from typing import IO, TYPE_CHECKING, Any

from gateway.runs.store.errors import (
    DatasetOffsetError,
    DatasetQuotaError,
    JudgeInUseError,
    JudgeMissingError,
    RequestIdReusedError,
)

if TYPE_CHECKING:  # loads SQLAlchemy, which takes longer than most commands
    from dramaturg.database.database import Database

__all__ = [
    "DatasetOffsetError",
    "DatasetQuotaError",
    "JudgeInUseError",
    "JudgeMissingError",
    "RequestIdReusedError",
    "RunStore",
    "open_reader",
    "open_store",
]

RETRY_SECONDS = 5.0


class RunStore:
    """The repositories of runs, each on a group of tables (see ``tables``).

    Any number of processes use one store at once. In another process an unpickled store is a reader.

    Args:
        database: The database of the tables.
        lock: Locks a SQLite file for this process until it is closed.

    Attributes:
        runs: The runs, their specs, states and progress.
        samples: Their samples.
        attempts: The outcomes of samples, and new attempts.
        results: Their judgements.
        judges: The identities of their judges.
        registrations: The judges that tenants registered.
        certificates: The certificates of judges.
        monitors: The monitors of judges.
        datasets: The uploaded datasets.
        label_sets: The label sets.
        spending: What tenants spend by day.
        executors: The leases of the gateways.
    """

    def __init__(self, database: Database, lock: IO[str] | None = None) -> None:
        from dramaturg.database.database import Leases
        from gateway.runs.store.attempts import Attempts, TenantSpending
        from gateway.runs.store.datasets import Datasets
        from gateway.runs.store.judges import JudgeCertificates, JudgeMonitors, RegisteredJudges, SeenJudges
        from gateway.runs.store.labels import LabelSets
        from gateway.runs.store.results import Results
        from gateway.runs.store.runs import Runs
        from gateway.runs.store.samples import Samples
        from gateway.runs.store.tables import run_executors

        self.database = database
        self._lock = lock
        self.runs = Runs(database)
        self.samples = Samples(database)
        self.attempts = Attempts(database)
        self.results = Results(database)
        self.judges = SeenJudges(database)
        self.registrations = RegisteredJudges(database)
        self.certificates = JudgeCertificates(database)
        self.monitors = JudgeMonitors(database)
        self.datasets = Datasets(database)
        self.label_sets = LabelSets(database)
        self.spending = TenantSpending(database)
        self.executors = Leases(database, run_executors)

    def __reduce__(self) -> tuple[Any, ...]:
        return open_reader, (self.database.url,)

    def close(self) -> None:
        """Closes the connections."""
        self.database.close()
        if self._lock is not None:
            self._lock.close()


def open_store(url: str, *, retry_seconds: float = RETRY_SECONDS) -> RunStore:
    """Opens a store, and creates or upgrades its tables.

    Blocks, as do all methods of its repositories, which are thread-safe.

    Args:
        url: ``sqlite:///folder/runs.sqlite3`` (four slashes before an absolute path), for one process at a
            time, or ``postgresql://user@host/database``, for any number.
        retry_seconds: How long a transaction is retried whose connection was lost.

    Raises:
        StoreError: The store is unreachable or not writable, another process has the file open, or a newer
            program wrote it. The message names the store, without its password.
    """
    from dramaturg.database.database import Database, create_engine, lock_file
    from dramaturg.database.migrations import migrate
    from gateway.runs.store.tables import SCHEMA

    engine, name = create_engine(url)
    database = Database(engine, name, retry_seconds)
    lock = lock_file(engine, name) if database.is_sqlite else None
    try:
        migrate(database, SCHEMA)
    except BaseException:
        database.close()
        if lock is not None:
            lock.close()
        raise
    return RunStore(database, lock)


@cache
def open_reader(url: str) -> RunStore:
    """A store that another process has opened, to read from it. Opened once in a process and never closed."""
    from dramaturg.database.database import Database, create_engine

    return RunStore(Database(*create_engine(url), RETRY_SECONDS))
