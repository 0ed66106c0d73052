"""The engine of runs, for one gateway."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from dramaturg.service.telemetry import tracing
from gateway.evaluations.dispatch import Evaluations
from gateway.runs.datasets import DatasetAccess
from gateway.runs.engine.batches import Worker
from gateway.runs.engine.bells import Bells
from gateway.runs.engine.conducting import Conductor
from gateway.runs.engine.database import executor_of, is_sqlite, migrate
from gateway.runs.engine.leases import Gateways
from gateway.runs.engine.patient import Patient
from gateway.runs.engine.preparing import DatasetReaders
from gateway.runs.engine.queues import open_queues
from gateway.runs.engine.reviving import Reviver
from gateway.runs.engine.sampling import Sampler
from gateway.runs.engine.tending import Tender
from gateway.runs.engine.threads import Threads
from gateway.runs.engine.workflows import Workflows
from gateway.runs.settings import RunsSettings
from gateway.runs.store.base import RunStore
from gateway.slots import Slots

_STORE_THREADS = 8


class RunEngine:
    """Carries out the runs of a store, together with the engines of all gateways that share it.

    The store is the truth: whoever changes a run there tells the engine, which else sees it at its next look.

    Args:
        settings: How much this gateway does.
        store: The store of runs.
        evaluations: Evaluates samples.
        bells: Ring when something of a run may have changed.
    """

    def __init__(
        self, settings: RunsSettings, store: RunStore, evaluations: Evaluations, bells: Bells
    ) -> None:
        executor = executor_of(settings)
        self._settings = settings
        self._store = store
        self._threads = Threads(_STORE_THREADS)
        self._bells = bells
        self._patient = Patient(self._threads)
        self._workflows = Workflows()
        # Of its own: a lease must not wait behind calls that wait for the store.
        self._lease_thread = Threads(1)
        self._gateways = Gateways(
            executor,
            store,
            self._lease_thread,
            alone=is_sqlite(settings.url),
            lease_seconds=settings.lease_seconds,
        )
        reviver = Reviver(store, self._threads, self._workflows, settings.stall_seconds)
        self._tender = Tender(store, self._threads, self._workflows, self._gateways, reviver)
        self._worker = Worker(
            store=store,
            patient=self._patient,
            sampler=Sampler(evaluations, settings.outage_seconds),
            gateways=self._gateways,
            bells=self._bells,
            samples=settings.concurrent_samples,
            batches=settings.concurrent_batches,
            look_seconds=settings.control_seconds,
        )
        access = DatasetAccess(settings.dataset_folders, settings.dataset_stores)
        self._readers = DatasetReaders(store, access)
        self._turns = Slots(settings.concurrent_runs)
        self._conducting: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Works on runs within an ``async with`` block.

        At the end it begins no further sample, lets those under way end within ``drain_seconds`` and leaves
        the rest to whoever comes next.

        Raises:
            StoreError: The store cannot be used.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._threads(migrate, self._settings)
            if not self._gateways.alone:
                await self._gateways.renew()
                tasks.append(_begin(self._gateways.hold(self._settings.renew_seconds)))
            async with open_queues(self._settings, self._gateways.executor, self):
                tasks.append(_begin(self._tender.tend(self._settings.renew_seconds)))
                try:
                    yield
                finally:
                    tasks.pop().cancel()
                    self._drain()
            if not self._gateways.alone:
                await self._gateways.drop()
        finally:
            for task in tasks:
                task.cancel()
            self._threads.close()
            self._readers.close()
            self._lease_thread.close()

    async def submit(self, run_id: str) -> None:
        """Has the present attempt at a run begun; it would be anyway, some seconds later."""
        run = await self._threads(self._store.get_run, run_id)
        if run is not None:
            await self._workflows.submit(run.id, run.attempt)

    async def wake(self, run_id: str) -> None:
        """Has this gateway look at once at a run whose state, limits or budget were changed."""
        self._bells.ring(run_id)

    async def conduct(self, run_id: str, attempt: int) -> None:
        """Sees a run through. Called by the workflow."""
        task = asyncio.current_task()
        assert task is not None
        self._conducting.add(task)
        settings = self._settings
        try:
            run = await self._patient(self._store.get_run, run_id)
            if run is None:
                return
            with (
                self._bells.listening(run_id) as bell,
                tracing.spanning("conduct run", {"dramaturg.run.id": run_id}, root=True),
            ):
                await Conductor(
                    run_id,
                    attempt,
                    store=self._store,
                    threads=self._threads,
                    workflows=self._workflows,
                    gateways=self._gateways,
                    readers=self._readers,
                    bell=bell,
                    turn=partial(self._turns.single, run.tenant),
                    look_seconds=settings.control_seconds,
                    stall_seconds=settings.stall_seconds,
                ).conduct()
        finally:
            self._conducting.discard(task)

    async def evaluate_batch(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        """Evaluates samples of a run. Called by the workflow."""
        await self._worker.evaluate(run_id, attempt, indices)

    def _drain(self) -> None:
        """Begins nothing more; what is under way has its time and is then cut."""
        self._worker.stop()
        for task in self._conducting:
            task.cancel()
        asyncio.get_running_loop().call_later(self._settings.drain_seconds, self._worker.cut)


def _begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Begins what goes on beside all calls: it belongs to none of them."""
    return asyncio.get_running_loop().create_task(work, context=contextvars.Context())
