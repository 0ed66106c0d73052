"""Configures DBOS, and opens and closes its queues in this process (measured facts are in docs/runs.md)."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

from gateway.runs.engine.throughput import BATCHES_PER_GATEWAY
from gateway.runs.engine.workflows import (
    BATCHES_QUEUE,
    RUNS_QUEUE,
    WORKFLOW_VERSION,
    WorkflowHandler,
    registered_handler,
)
from gateway.runs.settings import RunsSettings

APPLICATION = "dramaturg"
SQLITE_EXECUTOR = "local"
"""The fixed executor id on SQLite: after a restart the process owns the work of its predecessor."""

_THREADS = 16
_RUNS_POLL_SECONDS = 0.5
_BATCHES_POLL_SECONDS = 0.2
_NO_LOG = logging.NullHandler()


def is_sqlite(url: str) -> bool:
    """Whether the URL of a store names a SQLite file."""
    return sa.make_url(url).get_backend_name() == "sqlite"


def executor_id_of(settings: RunsSettings) -> str:
    """The executor id of this process: a name and the workflow version, which other gateways read from it."""
    if is_sqlite(settings.url):
        return f"{SQLITE_EXECUTOR}@{WORKFLOW_VERSION}"
    name = settings.executor_id or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    return f"{name}@{WORKFLOW_VERSION}"


def dbos_config(settings: RunsSettings, executor_id: str) -> DBOSConfig:
    """The configuration of DBOS for the store of the settings."""
    config: DBOSConfig = {
        "name": APPLICATION,
        "executor_id": executor_id,
        # The default is a hash of the source: each release would strand the work of the one before.
        "application_version": WORKFLOW_VERSION,
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
    """Upgrades the tables of DBOS on PostgreSQL if the settings ask for it. Blocks.

    Separate from ``DBOS.launch``, which blocks the event loop, so that the lease can be renewed meanwhile.
    """
    if settings.migrate and not is_sqlite(settings.url):
        DBOS.migrate(_postgres_url(settings))


@asynccontextmanager
async def open_queues(
    settings: RunsSettings, executor_id: str, handler: WorkflowHandler
) -> AsyncIterator[None]:
    """Claims workflows within an ``async with`` block; at the end waits for batches in progress.

    The caller ends the batches (``RunEngine.open``). Orchestrators are cancelled; their next owner starts
    them again.

    Args:
        settings: The store and the drain timeout.
        executor_id: The executor id of this process.
        handler: Executes the workflows.
    """
    with ExitStack() as registration:
        registration.enter_context(registered_handler(handler))
        # With a handler present DBOS adds none of its own, and its log records are formatted like all others.
        logging.getLogger("dbos").addHandler(_NO_LOG)
        try:
            DBOS(config=dbos_config(settings, executor_id))
            # On the running loop: otherwise workflows get a loop of their own, where no gRPC channel works.
            DBOS.launch()
            await _register_queues()
            yield
        finally:
            # First, so that workflows claimed from now on are left to others.
            registration.close()
            await _destroy(math.ceil(settings.drain_timeout_seconds) + 5 if handler.is_busy() else 0)


async def _register_queues() -> None:
    """Declares the queues, which DBOS keeps in the database for all gateways.

    A gateway claims all batches that are available to it, two of a run at most, and divides them between
    tenants itself (``FairSemaphore``): a bound of the queue would be filled by the tenant with most runs.
    """
    await DBOS.register_queue_async(
        RUNS_QUEUE, polling_interval_sec=_RUNS_POLL_SECONDS, on_conflict="always_update"
    )
    await DBOS.register_queue_async(
        BATCHES_QUEUE,
        partition_worker_concurrency=BATCHES_PER_GATEWAY,
        polling_interval_sec=_BATCHES_POLL_SECONDS,
        on_conflict="always_update",
    )


async def _destroy(timeout_seconds: int) -> None:
    """Stops claiming, and waits for workflows in progress."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as outside:
        closing = loop.run_in_executor(
            outside, lambda: DBOS.destroy(workflow_completion_timeout_sec=timeout_seconds)
        )
        # DBOS made its own threads the loop's and shuts them down; the gateway may open the queues again.
        loop.set_default_executor(ThreadPoolExecutor())
        await closing
    # Workflows that ended meanwhile made them the loop's again.
    loop.set_default_executor(ThreadPoolExecutor())


def _postgres_url(settings: RunsSettings) -> str:
    return sa.make_url(settings.url).set(drivername="postgresql").render_as_string(hide_password=False)


def _wal_engine(file: Path) -> sa.Engine:
    """An engine like that of DBOS, in write-ahead mode, in which steps take a sixth of the time."""
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
