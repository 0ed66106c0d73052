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
from gateway.fair_semaphore import FairSemaphore
from gateway.runs.datasets import DatasetAccess
from gateway.runs.engine.attendance import Attendance
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

_STORE_THREADS = 8
_REST_LOOK_SECONDS = 1.0
"""How often a gateway that rests looks whether another one has begun a run."""


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
        reviver = Reviver(store, self._threads, self._workflows, settings.stall_timeout_seconds)
        self._tender = Tender(store, self._threads, self._workflows, self._gateways, reviver)
        self._worker = Worker(
            store=store,
            patient=self._patient,
            sampler=Sampler(evaluations, settings.outage_timeout_seconds),
            gateways=self._gateways,
            bells=self._bells,
            samples=settings.max_concurrent_samples,
            batches=settings.max_concurrent_batches,
            look_seconds=settings.poll_seconds,
        )
        access = DatasetAccess(settings.dataset_folders, settings.dataset_schemes)
        self._readers = DatasetReaders(store, access)
        self._turns = FairSemaphore(settings.max_concurrent_runs)
        self._conducting: set[asyncio.Task[None]] = set()
        self._working = False
        self._submitted: set[str] = set()
        """The runs that this gateway was asked to begin and has not begun yet."""
        # On SQLite nobody else begins runs.
        look_seconds = settings.lease_renewal_seconds if self._gateways.alone else _REST_LOOK_SECONDS
        self._attendance = Attendance(self._work, self._is_wanted, look_seconds)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Works on runs within an ``async with`` block.

        At the end it begins no further sample, lets those in progress end within
        ``drain_timeout_seconds`` and leaves the rest.

        Raises:
            StoreError: The store cannot be used.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._threads(migrate, self._settings)
            if not self._gateways.alone:
                await self._gateways.renew()
                tasks.append(_begin(self._gateways.hold(self._settings.lease_renewal_seconds)))
            attending = _begin(self._attendance.keep(await self._attendance.begin()))
            tasks.append(attending)
            try:
                yield
            finally:
                self._drain()
                attending.cancel()
                await asyncio.wait([attending])
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
        self._submitted.add(run_id)
        if self._working:
            await self._begin_submitted(run_id)
        else:
            self._attendance.call()

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
            with tracing.span("conduct run", {"dramaturg.run.id": run_id}, root=True):
                await Conductor(
                    run_id,
                    attempt,
                    store=self._store,
                    threads=self._threads,
                    workflows=self._workflows,
                    gateways=self._gateways,
                    readers=self._readers,
                    bells=self._bells,
                    turn=partial(self._turns.single, run.tenant),
                    look_seconds=settings.poll_seconds,
                    stall_timeout_seconds=settings.stall_timeout_seconds,
                ).conduct()
        finally:
            self._conducting.discard(task)

    async def evaluate_batch(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        """Evaluates samples of a run. Called by the workflow."""
        await self._worker.evaluate(run_id, attempt, indices)

    def are_busy(self) -> bool:
        """Whether a run is conducted, or samples are evaluated, here."""
        return bool(self._conducting) or self._worker.is_busy

    @asynccontextmanager
    async def _work(self) -> AsyncIterator[None]:
        """Works on runs within an ``async with`` block; conductors that are left are cut at its end."""
        async with open_queues(self._settings, self._gateways.executor, self):
            tending = _begin(self._tender.tend(self._settings.lease_renewal_seconds))
            self._working = True
            try:
                for run_id in tuple(self._submitted):
                    await self._begin_submitted(run_id)
                yield
            finally:
                self._working = False
                tending.cancel()
                self._tender.rest()
                for task in self._conducting:
                    task.cancel()

    async def _begin_submitted(self, run_id: str) -> None:
        run = await self._threads(self._store.get_run, run_id)
        if run is not None:
            await self._workflows.begin(run.id, run.attempt)
        self._submitted.discard(run_id)

    async def _is_wanted(self) -> bool:
        return self.are_busy() or await self._threads(self._store.has_active_runs)

    def _drain(self) -> None:
        """Begins nothing more; what is under way has its time and is then cut."""
        self._worker.stop()
        asyncio.get_running_loop().call_later(self._settings.drain_timeout_seconds, self._worker.cut)


def _begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Begins what goes on beside all calls: it belongs to none of them."""
    return asyncio.get_running_loop().create_task(work, context=contextvars.Context())
