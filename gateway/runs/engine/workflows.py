"""The durable part: two workflows on two queues of DBOS, and everything that is asked of DBOS.

A workflow here is one coroutine without recorded steps. What it did is in the store of runs, where beginning
it again finds it; DBOS decides who runs it, once at a time, and that somebody does.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import uuid
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dbos import DBOS, SetEnqueueOptions, SetWorkflowID, WorkflowStatus

from gateway.runs.engine.database import CONTRACT, engine_config
from gateway.runs.engine.window import BATCHES_PER_GATEWAY
from gateway.runs.settings import RunsSettings

RUNS_QUEUE = "dramaturg-runs"
BATCHES_QUEUE = "dramaturg-batches"

_RUNS_POLL_SECONDS = 0.5
_BATCHES_POLL_SECONDS = 0.2
_ONGOING = ["ENQUEUED", "PENDING"]
_FAILED = "ERROR"
_LONGEST_ERROR = 500

Result = TypeVar("Result")


class Hands(Protocol):
    """Does what the workflows of this process are about."""

    async def conduct(self, run_id: str, attempt: int) -> None:
        """Sees a run through, from wherever it stands."""

    async def evaluate_batch(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        """Evaluates those of a run's samples that are still pending."""


@dataclass(frozen=True)
class Batch:
    """A batch that waits, is worked on or failed."""

    id: str
    """Names it."""
    indices: Sequence[int]
    """Its samples."""
    executor: str = ""
    """Who works on it. Empty: it waits, or failed."""
    error: str = ""
    """What it failed of: an error that is no sample's. Empty: it did not."""


class Workflows:
    """The workflows, for one process. DBOS has one instance a process, so there is one of these.

    Args:
        settings: Where the queues are, and how much is taken from them at once.
        executor: The name of this process among those that share them.
    """

    def __init__(self, settings: RunsSettings, executor: str) -> None:
        self._settings = settings
        self._executor = executor

    @asynccontextmanager
    async def open(self, hands: Hands) -> AsyncIterator[None]:
        """Begins to take work from the queues; at the end takes no more and waits for batches under way.

        Whoever closes it makes the batches end (see ``RunEngine.close``); conductors are cut, and begun again
        by whoever has them next.

        Args:
            hands: Does the work.
        """
        if _working:
            raise RuntimeError("this process has an engine of runs already: DBOS is one a process")
        _working.append(hands)
        loop = asyncio.get_running_loop()
        # With a handler there DBOS adds none of its own, and its logs are written like all others.
        logging.getLogger("dbos").addHandler(logging.NullHandler())
        try:
            DBOS(config=engine_config(self._settings, self._executor))
            # Within the running loop: else workflows run on a loop of their own, where no channel works.
            DBOS.launch()
            # DBOS keeps these in the database, for all gateways: the last one to start decides.
            await DBOS.register_queue_async(
                RUNS_QUEUE,
                worker_concurrency=self._settings.concurrent_runs,
                polling_interval_sec=_RUNS_POLL_SECONDS,
                on_conflict="always_update",
            )
            await DBOS.register_queue_async(
                BATCHES_QUEUE,
                worker_concurrency=self._settings.concurrent_batches,
                partition_worker_concurrency=BATCHES_PER_GATEWAY,
                polling_interval_sec=_BATCHES_POLL_SECONDS,
                on_conflict="always_update",
            )
            yield
        finally:
            _working.remove(hands)
            seconds = math.ceil(self._settings.drain_seconds) + 5
            with ThreadPoolExecutor(1) as outside:
                await loop.run_in_executor(
                    outside, lambda: DBOS.destroy(workflow_completion_timeout_sec=seconds)
                )
            # DBOS made its own threads the loop's, and they have ended.
            loop.set_default_executor(ThreadPoolExecutor())

    async def submit(self, run_id: str, attempt: int) -> None:
        """Has an attempt at a run conducted by somebody; a second time it changes nothing."""
        await _apart(self._submit(run_id, attempt))

    async def conductors(
        self, attempts: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], WorkflowStatus]:
        """Where the conductors of some attempts stand; those that were never submitted are left out."""
        ids = {_conductor_id(*attempt): attempt for attempt in attempts}
        found = await _apart(_list(workflow_ids=list(ids))) if ids else []
        return {ids[status.workflow_id]: status for status in found}

    async def begin_anew(self, run_id: str, attempt: int) -> None:
        """Submits an attempt again whose conductor has ended although the run has not."""
        await _apart(DBOS.delete_workflow_async(_conductor_id(run_id, attempt)))
        await self.submit(run_id, attempt)

    async def enqueue_batch(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        """Has samples of an attempt at a run evaluated by whoever is free first."""
        await _apart(self._enqueue_batch(run_id, attempt, indices))

    async def batches(self, run_id: str, attempt: int) -> Sequence[Batch]:
        """The batches of an attempt that wait, are worked on, or failed and were not forgotten."""
        found = await _apart(
            _list(
                workflow_id_prefix=_batch_prefix(run_id, attempt),
                status=[*_ONGOING, _FAILED],
                load_input=True,
                load_output=True,
            )
        )
        return [_batch(status) for status in found]

    async def forget(self, batches: Sequence[Batch]) -> None:
        """Deletes what DBOS keeps of some batches that failed."""
        await _apart(DBOS.delete_workflows_async([batch.id for batch in batches]))

    async def forget_batches(self, run_id: str, attempt: int) -> None:
        """Deletes what DBOS keeps of the batches of an attempt that are done."""
        found = await _apart(_list(workflow_id_prefix=_batch_prefix(run_id, attempt), status="SUCCESS"))
        for start in range(0, len(found), 500):
            ids = [status.workflow_id for status in found[start : start + 500]]
            await _apart(DBOS.delete_workflows_async(ids))

    async def queued_batches(self) -> tuple[int, int]:
        """How many batches of all runs wait, and how many are worked on."""
        found = await _apart(_list(queue_name=BATCHES_QUEUE, status=_ONGOING))
        waiting = sum(status.status == "ENQUEUED" for status in found)
        return waiting, len(found) - waiting

    async def under_way(self) -> Sequence[WorkflowStatus]:
        """The workflows that executors work on, whether they live or not."""
        return await _apart(_list(status="PENDING"))

    async def take_back(self, status: WorkflowStatus) -> None:
        """Puts a workflow back into its queue."""
        await _apart(DBOS.resume_workflow_async(status.workflow_id, queue_name=status.queue_name))

    async def _submit(self, run_id: str, attempt: int) -> None:
        with SetWorkflowID(_conductor_id(run_id, attempt)):
            await DBOS.enqueue_workflow_async(RUNS_QUEUE, conduct, run_id, attempt)

    async def _enqueue_batch(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        with (
            SetWorkflowID(f"{_batch_prefix(run_id, attempt)}{uuid.uuid4().hex}"),
            # A part of the queue for every run: gateways look into them in a random order.
            SetEnqueueOptions(queue_partition_key=run_id),
        ):
            await DBOS.enqueue_workflow_async(BATCHES_QUEUE, evaluate_batch, run_id, attempt, list(indices))


_working: list[Hands] = []


# Never given up: a sample that kills whoever evaluates it is told by its own count (SampleWork.tries).
@DBOS.workflow(name="conduct", max_recovery_attempts=None)
async def conduct(run_id: str, attempt: int) -> None:
    """Sees a run through."""
    await _apart(_hands().conduct(run_id, attempt))


@DBOS.workflow(name="evaluate_batch", max_recovery_attempts=None)
async def evaluate_batch(run_id: str, attempt: int, indices: list[int]) -> None:
    """Evaluates samples of a run."""
    await _apart(_hands().evaluate_batch(run_id, attempt, indices))


def is_ours(status: WorkflowStatus) -> bool:
    """Whether this process has the version of the workflows that a workflow was begun with."""
    return status.app_version == CONTRACT


def _hands() -> Hands:
    if not _working:
        # Claimed while the process stops: whoever has it next begins it again.
        raise asyncio.CancelledError
    return _working[0]


async def _apart(work: Coroutine[Any, Any, Result]) -> Result:
    """Does something outside of the workflow that asks for it, so that DBOS does not record it as a step."""
    return await asyncio.get_running_loop().create_task(work, context=contextvars.Context())


async def _list(
    *, load_input: bool = False, load_output: bool = False, **filters: Any
) -> Sequence[WorkflowStatus]:
    return await DBOS.list_workflows_async(load_input=load_input, load_output=load_output, **filters)


def _batch(status: WorkflowStatus) -> Batch:
    assert status.input is not None
    indices: list[int] = status.input["args"][2]
    if status.status == _FAILED:
        return Batch(status.workflow_id, indices, error=_error(status.error))
    executor = str(status.executor_id or "") if status.status == "PENDING" else ""
    return Batch(status.workflow_id, indices, executor)


def _error(error: Exception | None) -> str:
    """An error in words. What DBOS kept of it has its name as an attribute."""
    described = f"{getattr(error, 'name', type(error).__name__)}: {error}"
    return described if len(described) <= _LONGEST_ERROR else f"{described[:_LONGEST_ERROR]}..."


def _conductor_id(run_id: str, attempt: int) -> str:
    return f"{run_id}:{attempt}"


def _batch_prefix(run_id: str, attempt: int) -> str:
    return f"{run_id}:{attempt}:"
