"""The two durable workflows of DBOS, a client that starts, finds and deletes them, and their queues.

A workflow is one coroutine without recorded steps. Its progress is in the run store, from which it continues
after a restart; DBOS decides which process executes it, and that only one does.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import socket
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import sqlalchemy as sa
from dbos import (
    DBOS,
    DBOSConfig,
    DBOSPortableJSONSerializer,
    SetEnqueueOptions,
    SetWorkflowID,
    WorkflowHandleAsync,
    WorkflowStatus,
)

from dramaturg.database.database import use_wal
from gateway.runs.engine.policy import BATCHES_PER_GATEWAY
from gateway.runs.settings import RunsSettings

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Attempt = tuple[str, int]
"""A run id and the number of an attempt."""

WORKFLOW_VERSION = "1"
"""Raised when gateways of two versions could not finish each other's workflows, never with a release as
such."""

RUNS_QUEUE = "dramaturg-runs"
BATCHES_QUEUE = "dramaturg-batches"

APPLICATION = "dramaturg"
SQLITE_EXECUTOR = "local"
"""The fixed executor id on SQLite: after a restart the process owns the work of its predecessor."""

_THREADS = 16
_RUNS_POLL_SECONDS = 0.5
_BATCHES_POLL_SECONDS = 0.2
_BUSY_SECONDS = 30
_NO_LOG = logging.NullHandler()

_ONGOING = ["ENQUEUED", "PENDING"]
_FAILED = "ERROR"
_MAX_ERROR_LENGTH = 500
_DELETE_AT_ONCE = 500


class WorkflowHandler(Protocol):
    """Handles this process's workflows."""

    async def orchestrate(self, run_id: str, attempt: int) -> None:
        """Executes an attempt of a run from its current state."""

    async def evaluate_batch(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        """Evaluates the pending ones of these samples."""

    def is_busy(self) -> bool:
        """Whether a workflow is in progress."""


_handlers: list[WorkflowHandler] = []


@contextmanager
def registered_handler(handler: WorkflowHandler) -> Iterator[None]:
    """Registers the handler of this process within a ``with`` block.

    Raises:
        RuntimeError: Another handler is registered.
    """
    if _handlers:
        raise RuntimeError("this process has a run engine already: DBOS allows one per process")
    _handlers.append(handler)
    try:
        yield
    finally:
        _handlers.remove(handler)


def _handler() -> WorkflowHandler:
    if not _handlers:
        # Claimed during shutdown: the next owner starts it again.
        raise asyncio.CancelledError
    return _handlers[0]


# No recovery limit: a sample that kills its gateway is detected by its own count (SampleWork.crashes).
@DBOS.workflow(name="orchestrate_run", max_recovery_attempts=None)
async def orchestrate_run(run_id: str, attempt: int) -> None:
    """Executes an attempt of a run."""
    await run_detached(_handler().orchestrate(run_id, attempt))


@DBOS.workflow(name="evaluate_batch", max_recovery_attempts=None)
async def evaluate_batch(run_id: str, attempt: int, indices: list[int]) -> None:
    """Evaluates samples of a run."""
    await run_detached(_handler().evaluate_batch(run_id, attempt, indices))


async def run_detached(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Awaits a coroutine outside of the caller's context: in that of a workflow DBOS records steps."""
    return await asyncio.get_running_loop().create_task(coroutine, context=contextvars.Context())


@dataclass(frozen=True)
class Batch:
    """A batch of samples that waits, is in progress or failed."""

    id: str
    indices: Sequence[int]
    executor_id: str = ""
    """The gateway that claimed it. Empty: none."""
    error: str = ""
    """The error it failed with, which is not one of its samples. Empty: it did not fail."""


class WorkflowClient:
    """The workflows of all processes that share the queues, which must be open (``open_queues``).

    Not for the context of a workflow, where DBOS would record each call as a step: see ``run_detached``.
    """

    def __init__(self) -> None:
        self._started: set[asyncio.Task[None]] = set()

    async def start_run(self, run_id: str, attempt: int) -> None:
        """Starts the orchestrator of an attempt in this process. Idempotent over all processes."""
        await run_detached(_start(_orchestrator_id(run_id, attempt), orchestrate_run, run_id, attempt))

    async def orchestrators(self, attempts: Collection[Attempt]) -> dict[Attempt, WorkflowStatus]:
        """The status of the orchestrators of these attempts, of those that were ever started."""
        ids = {_orchestrator_id(*attempt): attempt for attempt in attempts}
        found = await _list(workflow_ids=list(ids), load_output=True) if ids else []
        return {ids[status.workflow_id]: status for status in found}

    async def restart_run(self, run_id: str, attempt: int) -> None:
        """Enqueues an attempt again whose orchestrator ended before the run."""
        workflow_id = _orchestrator_id(run_id, attempt)
        await DBOS.delete_workflow_async(workflow_id)
        # Through the queue: this process may be the cause of the failure.
        with SetWorkflowID(workflow_id):
            await DBOS.enqueue_workflow_async(RUNS_QUEUE, orchestrate_run, run_id, attempt)

    async def start_batch(
        self, on_end: Callable[[], None], run_id: str, attempt: int, indices: Sequence[int]
    ) -> None:
        """Starts the evaluation of samples in this process.

        Args:
            on_end: Called when the batch ended, successfully or not.
            run_id: The run.
            attempt: The attempt.
            indices: The samples.
        """
        batch_id = _new_batch_id(run_id, attempt)
        handle = await run_detached(_start(batch_id, evaluate_batch, run_id, attempt, list(indices)))
        task = asyncio.create_task(handle.get_result(), context=contextvars.Context())
        self._started.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._started.discard(task)
            # The error is read from the workflow's status.
            if not task.cancelled():
                task.exception()
            on_end()

        task.add_done_callback(ended)

    async def enqueue_batch(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        """Enqueues the evaluation of samples for any gateway."""
        with (
            SetWorkflowID(_new_batch_id(run_id, attempt)),
            # One partition per run: gateways poll the partitions in random order.
            SetEnqueueOptions(queue_partition_key=run_id),
        ):
            await DBOS.enqueue_workflow_async(BATCHES_QUEUE, evaluate_batch, run_id, attempt, list(indices))

    async def batches(self, run_id: str, attempt: int) -> Sequence[Batch]:
        """The batches of an attempt that wait, are in progress, or failed and were not deleted."""
        found = await _list(
            workflow_id_prefix=_batch_prefix(run_id, attempt),
            status=[*_ONGOING, _FAILED],
            load_input=True,
            load_output=True,
        )
        return [_batch(status) for status in found]

    async def delete_batches(self, batches: Sequence[Batch]) -> None:
        """Deletes the records of batches that failed."""
        await DBOS.delete_workflows_async([batch.id for batch in batches])

    async def delete_completed_batches(self, run_id: str, attempt: int) -> None:
        """Deletes the records of the completed batches of an attempt."""
        found = await _list(workflow_id_prefix=_batch_prefix(run_id, attempt), status="SUCCESS")
        for start in range(0, len(found), _DELETE_AT_ONCE):
            ids = [status.workflow_id for status in found[start : start + _DELETE_AT_ONCE]]
            await DBOS.delete_workflows_async(ids)

    async def queue_depth(self) -> tuple[int, int]:
        """The number of batches of all runs that wait, and of those in progress."""
        found = await _list(name=evaluate_batch.__name__, status=_ONGOING)
        waiting = sum(status.status == "ENQUEUED" for status in found)
        return waiting, len(found) - waiting

    async def owners(self) -> Mapping[str, int]:
        """The executors of this version, live or not, with the number of workflows assigned to each."""
        found = await _list(status="PENDING", app_version=WORKFLOW_VERSION)
        return Counter(str(status.executor_id) for status in found)

    async def recover(self, executor_ids: Sequence[str]) -> None:
        """Returns the workflows of executors that ended to their queues.

        DBOS leaves each that another executor has claimed meanwhile. Of errors of the database it tells only
        its log, and the workflow stays assigned: the next pass recovers it.
        """
        # Not public, and what the administration server of DBOS calls for this.
        await asyncio.to_thread(DBOS._recover_pending_workflows, list(executor_ids))


def has_current_version(status: WorkflowStatus) -> bool:
    """Whether a workflow was started with the workflow version of this process."""
    return status.app_version == WORKFLOW_VERSION


def error_of(status: WorkflowStatus) -> str:
    """The error that a workflow failed with. Empty: it did not fail."""
    if status.status != _FAILED:
        return ""
    error = status.error
    # DBOS keeps the class name of a serialised error as an attribute.
    described = f"{getattr(error, 'name', type(error).__name__)}: {error}"
    return described if len(described) <= _MAX_ERROR_LENGTH else f"{described[:_MAX_ERROR_LENGTH]}..."


async def _start(
    workflow_id: str,
    workflow: Callable[Parameters, Coroutine[Any, Any, None]],
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> WorkflowHandleAsync[None]:
    with SetWorkflowID(workflow_id):
        return await DBOS.start_workflow_async(workflow, *args, **kwargs)


async def _list(
    *, load_input: bool = False, load_output: bool = False, **filters: Any
) -> Sequence[WorkflowStatus]:
    return await DBOS.list_workflows_async(load_input=load_input, load_output=load_output, **filters)


def _batch(status: WorkflowStatus) -> Batch:
    assert status.input is not None
    indices: list[int] = status.input["args"][2]
    executor_id = str(status.executor_id or "") if status.status == "PENDING" else ""
    return Batch(status.workflow_id, indices, executor_id, error_of(status))


def _orchestrator_id(run_id: str, attempt: int) -> str:
    return f"{run_id}:{attempt}"


def _batch_prefix(run_id: str, attempt: int) -> str:
    return f"{run_id}:{attempt}:"


def _new_batch_id(run_id: str, attempt: int) -> str:
    return f"{_batch_prefix(run_id, attempt)}{uuid.uuid4().hex}"


def is_sqlite(url: str) -> bool:
    """Whether the URL of a store names a SQLite file."""
    return sa.make_url(url).get_backend_name() == "sqlite"


def executor_id_of(settings: RunsSettings) -> str:
    """The executor id of this process: a name and the workflow version, which other gateways read from it.

    On PostgreSQL it is another one for each process. Under one id a predecessor that is draining could claim
    what its successor has recovered, and leave it assigned to a process that ends.
    """
    if is_sqlite(settings.url):
        return f"{SQLITE_EXECUTOR}@{WORKFLOW_VERSION}"
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}@{WORKFLOW_VERSION}"


def version_of(executor_id: str) -> str:
    """The workflow version of an executor, which its id ends in."""
    return executor_id.rpartition("@")[2]


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
        # No workflow waits for notifications, so a poll reads nothing, but closing waits for its end.
        "notification_listener_polling_interval_sec": 0.1,
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
    """Creates and upgrades the tables of DBOS on PostgreSQL. Those of its version are only read. Blocks.

    Separate from ``DBOS.launch``, which blocks the event loop, so that the lease can be renewed meanwhile.
    """
    if not is_sqlite(settings.url):
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
        use_wal(connection, _BUSY_SECONDS)
        for setting in (f"busy_timeout={1000 * _BUSY_SECONDS}", "foreign_keys=ON", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {setting}")

    return engine
