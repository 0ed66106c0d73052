"""One transaction at a time on SQLite or PostgreSQL, tried again where a connection was lost."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import sqlalchemy as sa

from gateway.runs.store.base import StoreError

Result = TypeVar("Result")
Work = Callable[[sa.Connection], Result]

WRITES = "dramaturg_writes"
"""The execution option of a connection whose transaction writes."""

_TRIED = "dramaturg_tried"

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 1.0

# SQLSTATE classes and codes (PostgreSQL, appendix A) after which the same transaction may succeed: connection
# exceptions, transaction rollbacks (deadlock, serialisation), a server that stops or starts, all slots taken.
_PASSING_CLASSES = ("08", "40", "57P", "53300")


class Database:
    """Runs work in transactions.

    Args:
        engine: The connections.
        name: The database in messages, without secrets.
        timeouts: For how many seconds work is tried again whose connection was lost.
    """

    def __init__(self, engine: sa.Engine, name: str, timeouts: float) -> None:
        self._engine = engine
        self._writing = engine.execution_options(**{WRITES: True})
        self._writing_again = engine.execution_options(**{WRITES: True, _TRIED: True})
        self._timeouts = timeouts
        self.name = name
        # SQLite has one writer at a time; whoever waits in its busy handler sleeps for up to 100 ms too long.
        self._turn: AbstractContextManager[object] = (
            threading.Lock() if engine.dialect.name == "sqlite" else nullcontext()
        )

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a SQLite file."""
        return self._engine.dialect.name == "sqlite"

    def read(self, work: Work[Result]) -> Result:
        """Runs work that writes nothing.

        Raises:
            StoreError: the database cannot be used.
        """
        return self._try(lambda _: self._once(self._engine, work))

    def write(self, work: Work[Result]) -> Result:
        """Runs work and commits it, or undoes all of it.

        Work may run more than once. Where the connection is lost in the moment of the commit nobody knows
        whether that happened, so work must find what it has done already (see ``was_tried``).

        Raises:
            StoreError: the database cannot be used.
        """

        def once(tried: bool) -> Result:
            with self._turn:
                return self._once(self._writing_again if tried else self._writing, work)

        return self._try(once)

    def now(self, connection: sa.Connection) -> int:
        """The time by the clock that all who use the database share, in microseconds since 1970."""
        if self.is_sqlite:  # one process has it open
            return time.time_ns() // 1000
        seconds = connection.execute(
            sa.select(sa.func.extract("epoch", sa.func.clock_timestamp()))
        ).scalar_one()
        return int(seconds * 1_000_000)

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()

    @staticmethod
    def _once(engine: sa.Engine, work: Work[Result]) -> Result:
        with engine.begin() as connection:
            return work(connection)

    def _try(self, once: Callable[[bool], Result]) -> Result:
        give_up = time.monotonic() + self._timeouts
        wait = _FIRST_WAIT_SECONDS
        tried = False
        while True:
            try:
                return once(tried)
            except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
                if isinstance(error, sa.exc.IntegrityError | sa.exc.ProgrammingError | sa.exc.DataError):
                    raise  # a fault of ours, not of the database
                if not self._passes(error) or time.monotonic() + wait > give_up:
                    raise StoreError(
                        f"the store of runs {self.name} cannot be used: {_why(error)}"
                    ) from error
            time.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads replicas, guards nothing
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
            tried = True

    def _passes(self, error: sa.exc.DBAPIError | sa.exc.TimeoutError) -> bool:
        if self.is_sqlite:
            return False
        if isinstance(error, sa.exc.TimeoutError):  # every connection of the pool is in use
            return True
        state = getattr(error.orig, "sqlstate", None)
        # Without a state: no server answered.
        return error.connection_invalidated or state is None or str(state).startswith(_PASSING_CLASSES)


def was_tried(connection: sa.Connection) -> bool:
    """Whether this transaction was tried before and lost its connection, perhaps after its commit."""
    return bool(connection.get_execution_options().get(_TRIED))


def _why(error: sa.exc.DBAPIError | sa.exc.TimeoutError) -> str:
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return " ".join(str(cause).split())
