"""The run engine of one gateway."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from dramaturg.database import StoreError
from dramaturg.service.telemetry import tracing
from dramaturg.service.threads import FairSemaphore, ThreadPool
from gateway.evaluations.kinds import Evaluations
from gateway.runs.engine.executors import RunReconciler
from gateway.runs.engine.orchestrator import DatasetIngest, RunOrchestrator
from gateway.runs.engine.parts import ClusterMembership, EngineParts, SamplePacer
from gateway.runs.engine.sample_evaluation import SampleEvaluator
from gateway.runs.engine.worker import Worker
from gateway.runs.engine.workflows import (
    WorkflowClient,
    executor_id_of,
    is_sqlite,
    migrate,
    open_queues,
)
from gateway.runs.notifications import ChangeListener, ChangeNotifier
from gateway.runs.settings import RunsSettings
from gateway.runs.store import RunStore
from gateway.runs.store_calls import RetryingCaller

logger = logging.getLogger(__name__)

PURGE_SECONDS = 60.0
"""How often deletions are completed that a stopped process left."""
IDLE_SECONDS = 10.0
"""The time without an active run after which the queues are closed."""

_STORE_THREADS = 8
_ACTIVE_POLL_SECONDS = 1.0
"""How often open queues check for active runs."""
_IDLE_POLL_SECONDS = 1.0
"""How often an idle gateway checks whether another one started a run."""


class RunEngine:
    """Executes the runs of a store, together with the engines of all gateways that share it.

    The store holds the truth. A caller that changes a run there notifies the engine, which otherwise sees the
    change at its next poll.

    Args:
        settings: The limits of this gateway.
        store: The run store.
        evaluations: Evaluates samples.
        notifier: Notifies on changes of runs.
        pacer: Paces the samples. None: they start at once.
        on_gateways: Called with the number of live gateways, see ``ClusterMembership``.
    """

    def __init__(
        self,
        settings: RunsSettings,
        store: RunStore,
        evaluations: Evaluations,
        notifier: ChangeNotifier,
        pacer: SamplePacer | None = None,
        on_gateways: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._threads = ThreadPool(_STORE_THREADS)
        self._workflows = WorkflowClient()
        # Separate: a lease must not wait behind calls that wait for the store.
        self._lease_thread = ThreadPool(1)
        self._membership = ClusterMembership(
            executor_id_of(settings),
            store.executors,
            self._lease_thread,
            single=is_sqlite(settings.url),
            lease_seconds=settings.lease_seconds,
            on_count=on_gateways,
        )
        self._parts = EngineParts(
            settings=settings,
            store=store,
            threads=self._threads,
            call=RetryingCaller(self._threads),
            workflows=self._workflows,
            membership=self._membership,
            notifier=notifier,
            evaluator=SampleEvaluator(evaluations, settings.outage_timeout_seconds),
            pacer=pacer or SamplePacer(lambda _: False),
        )
        self._reconciler = RunReconciler(self._parts)
        self._worker = Worker(self._parts)
        self._ingest = DatasetIngest(store, settings)
        self._turns = FairSemaphore(settings.max_concurrent_runs)
        self._orchestrations: set[asyncio.Task[None]] = set()
        self._is_open = False
        """Whether the queues are open."""
        self._submitted: set[str] = set()
        """The runs that were submitted here and are not started."""
        # On SQLite no other gateway starts runs.
        idle_poll = settings.lease_renewal_seconds if self._membership.single else _IDLE_POLL_SECONDS
        self._lifecycle = QueueLifecycle(self._open_queues, self._has_work, idle_poll)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Executes runs within an ``async with`` block.

        At the end it starts no further sample, lets those in progress finish within ``drain_timeout_seconds``
        and leaves the rest to other gateways or the next start.

        Raises:
            StoreError: The store is unavailable.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._threads(migrate, self._settings)
            if not self._membership.single:
                await self._membership.renew()
                tasks.append(_start(self._membership.keep_lease(self._settings.lease_renewal_seconds)))
            lifecycle = _start(self._lifecycle.run(await self._lifecycle.open()))
            tasks.append(lifecycle)
            tasks.append(_start(self._purge_deleted()))
            try:
                yield
            finally:
                self._drain()
                lifecycle.cancel()
                await asyncio.wait([lifecycle])
            if not self._membership.single:
                await self._membership.leave()
        finally:
            for task in tasks:
                task.cancel()
            self._threads.close()
            self._ingest.close()
            self._lease_thread.close()

    async def submit(self, run_id: str) -> None:
        """Starts the current attempt of a run; without this call the reconciler does, seconds later."""
        self._submitted.add(run_id)
        if self._is_open:
            await self._start_submitted(run_id)
        else:
            self._lifecycle.wake()

    async def orchestrate(self, run_id: str, attempt: int) -> None:
        """Executes an attempt of a run. Called by the workflow."""
        task = asyncio.current_task()
        assert task is not None
        self._orchestrations.add(task)
        try:
            run = await self._parts.call(self._store.runs.get, run_id)
            if run is None:
                return
            with tracing.span("orchestrate run", {"dramaturg.run.id": run_id}, root=True):
                turn = partial(self._turns.single, run.tenant)
                await RunOrchestrator(run_id, attempt, self._parts, self._ingest, turn).run()
        finally:
            self._orchestrations.discard(task)

    async def evaluate_batch(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        """Evaluates samples of a run. Called by the workflow."""
        await self._worker.evaluate(run_id, attempt, indices)

    def is_busy(self) -> bool:
        """Whether a run or a batch is in progress here."""
        return bool(self._orchestrations) or self._worker.is_busy

    @asynccontextmanager
    async def _open_queues(self) -> AsyncIterator[None]:
        """Claims work within an ``async with`` block; cancels the orchestrators that are left at its end."""
        async with open_queues(self._settings, self._membership.executor_id, self):
            reconciling = _start(self._reconciler.run(self._settings.lease_renewal_seconds))
            self._is_open = True
            try:
                for run_id in tuple(self._submitted):
                    await self._start_submitted(run_id)
                yield
            finally:
                self._is_open = False
                reconciling.cancel()
                self._reconciler.clear_metrics()
                for task in self._orchestrations:
                    task.cancel()

    async def _start_submitted(self, run_id: str) -> None:
        run = await self._threads(self._store.runs.get, run_id)
        if run is not None:
            await self._workflows.start_run(run.id, run.attempt)
        self._submitted.discard(run_id)

    async def _purge_deleted(self) -> None:
        while True:
            try:
                while await self._threads(self._store.runs.purge):
                    pass
                expiry = self._settings.upload_expiry_seconds
                while await self._threads(self._store.datasets.purge, expiry):
                    pass
            except StoreError as error:
                logger.warning("deleted runs and datasets cannot be purged: %s", error)
            await asyncio.sleep(PURGE_SECONDS)

    async def _has_work(self) -> bool:
        return self.is_busy() or await self._threads(self._store.runs.has_active)

    def _drain(self) -> None:
        """Starts no further sample, and cancels those in progress after the drain timeout."""
        self._worker.stop()
        asyncio.get_running_loop().call_later(self._settings.drain_timeout_seconds, self._worker.cancel)


class QueueLifecycle:
    """Opens the queues while there are active runs, and closes them after a while without any.

    Open queues poll the database several times a second for work, timeouts and new queues, which takes 3 % of
    a processor core.

    Args:
        open_queues: Opens the queues within an ``async with`` block.
        has_work: Whether there are active runs.
        idle_poll_seconds: How often ``has_work`` is asked while the queues are closed.
    """

    def __init__(
        self,
        open_queues: Callable[[], AbstractAsyncContextManager[None]],
        has_work: Callable[[], Awaitable[bool]],
        idle_poll_seconds: float,
    ) -> None:
        self._open_queues = open_queues
        self._has_work = has_work
        self._idle_poll_seconds = idle_poll_seconds
        self._listener = ChangeListener()

    def wake(self) -> None:
        """Checks for work at once."""
        self._listener.notify()

    async def open(self) -> AsyncExitStack:
        """Opens the queues until the returned stack is closed."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._open_queues())
            return stack.pop_all()

    async def run(self, opened: AsyncExitStack) -> None:
        """Closes and opens the queues until cancelled.

        Args:
            opened: The result of ``open``.
        """
        while True:
            try:
                async with opened:
                    await self._until_idle()
            except Exception:
                logger.exception("the queues were not closed properly")
            opened = await self._reopen()

    async def _reopen(self) -> AsyncExitStack:
        while True:
            await self._until_wanted()
            try:
                return await self.open()
            except Exception:
                # For example an error of the database below DBOS, which may recover.
                logger.exception("the queues cannot be opened")
                await self._listener.wait(_ACTIVE_POLL_SECONDS)

    async def _until_idle(self) -> None:
        last = time.monotonic()
        while time.monotonic() - last < IDLE_SECONDS:
            await self._listener.wait(_ACTIVE_POLL_SECONDS)
            if await self._is_wanted(unknown=True):
                last = time.monotonic()

    async def _until_wanted(self) -> None:
        while not await self._is_wanted(unknown=False):
            await self._listener.wait(self._idle_poll_seconds)

    async def _is_wanted(self, *, unknown: bool) -> bool:
        try:
            return await self._has_work()
        except StoreError as error:
            logger.warning("the store cannot be asked for active runs: %s", error)
            return unknown


def _start(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Starts a background task outside of the context of any call."""
    return asyncio.get_running_loop().create_task(coroutine, context=contextvars.Context())
