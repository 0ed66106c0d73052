"""Configures DBOS, the engine below the workflows (measured facts of version 3.4 are in docs/runs.md)."""

from __future__ import annotations

import socket
import uuid
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

from gateway.runs.settings import RunsSettings

CONTRACT = "1"
"""The version of the workflows. Raised when a gateway of the old version could not finish what one of the new
version began, or the other way round; never with a release as such."""
APPLICATION = "dramaturg"
SQLITE_EXECUTOR = "local"
"""The executor on SQLite, always the same: after a restart the work of the one before is its own."""

_THREADS = 16


def contract_of(executor: str) -> str:
    """The version of the workflows that an executor has, as its name tells."""
    return executor.rpartition("@")[2]


def is_sqlite(url: str) -> bool:
    """Whether a store's address is that of a file."""
    return sa.make_url(url).get_backend_name() == "sqlite"


def executor_of(settings: RunsSettings) -> str:
    """A name for this process among those that share the store.

    It carries the version of the workflows, so that others can tell whether somebody is left who has it.
    """
    if is_sqlite(settings.url):
        return f"{SQLITE_EXECUTOR}@{CONTRACT}"
    return f"{settings.executor_id or f'{socket.gethostname()}-{uuid.uuid4().hex[:8]}'}@{CONTRACT}"


def engine_config(settings: RunsSettings, executor: str) -> DBOSConfig:
    """The configuration of DBOS for a store, under the name of this process."""
    config: DBOSConfig = {
        "name": APPLICATION,
        "executor_id": executor,
        # By default a hash of the source: every release would then strand the work of the one before.
        "application_version": CONTRACT,
        # The default pickles.
        "serializer": DBOSPortableJSONSerializer(),
        "log_level": "WARNING",
        "max_executor_threads": _THREADS,
        "notification_listener_polling_interval_sec": 1.0,
    }
    if is_sqlite(settings.url):
        store = Path(str(sa.make_url(settings.url).database))
        file = store.with_name(f"{store.stem}-engine{store.suffix}")
        file.parent.mkdir(parents=True, exist_ok=True)
        config["system_database_url"] = f"sqlite:///{file}"
        config["system_database_engine"] = _wal_engine(file)
    else:
        config["system_database_url"] = _postgres_url(settings)
        config["sys_db_pool_size"] = settings.engine_pool_size
        config["run_migrations"] = False
    return config


def migrate(settings: RunsSettings) -> None:
    """Brings the engine's tables on PostgreSQL up to date, where the settings want it. Blocks.

    Apart from ``DBOS.launch``, which blocks the event loop: a lease could not be renewed meanwhile.
    """
    if settings.migrate and not is_sqlite(settings.url):
        DBOS.migrate(_postgres_url(settings))


def _postgres_url(settings: RunsSettings) -> str:
    return sa.make_url(settings.url).set(drivername="postgresql").render_as_string(hide_password=False)


def _wal_engine(file: Path) -> sa.Engine:
    """An engine as DBOS makes it, in write-ahead mode: that alone makes its steps six times as fast."""
    engine = sa.create_engine(
        f"sqlite:///{file}", connect_args={"check_same_thread": False}, pool_size=8, max_overflow=16
    )

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, record: object) -> None:
        del record
        # Without it two threads could claim the same workflow.
        connection.isolation_level = "IMMEDIATE"
        for setting in ("busy_timeout=30000", "foreign_keys=ON", "journal_mode=WAL", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {setting}")

    return engine
