"""Everything that is asked of DBOS about the workflows: to have one done, where it stands, to forget it."""

from __future__ import annotations

import asyncio
import contextvars
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from dbos import DBOS, SetEnqueueOptions, SetWorkflowID, WorkflowHandleAsync, WorkflowStatus

from gateway.runs.engine.database import CONTRACT
from gateway.runs.engine.durable import apart, conduct, evaluate_batch

RUNS_QUEUE = "dramaturg-runs"
BATCHES_QUEUE = "dramaturg-batches"

_ONGOING = ["ENQUEUED", "PENDING"]
_FAILED = "ERROR"
_LONGEST_ERROR = 500


@dataclass(frozen=True)
class Batch:
    """A batch that waits, is worked on or failed."""

    id: str
    """Names it."""
    indices: Sequence[int]
    """Its samples."""
    executor: str = ""
    """Who has claimed it. Empty: it waits, or failed."""
    error: str = ""
    """What it failed of: an error that is no sample's. Empty: it did not."""


class Workflows:
    """The workflows of all processes that share the queues. This one's must be open (see ``open_queues``)."""

    def __init__(self) -> None:
        self._begun: set[asyncio.Task[None]] = set()

    async def begin(self, run_id: str, attempt: int) -> None:
        """Has an attempt at a run conducted by this process; a second time, by any, it changes nothing."""
        await apart(self._begin(run_id, attempt))

    async def conductors(
        self, attempts: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], WorkflowStatus]:
        """Where the conductors of some attempts stand; those that were never submitted are left out."""
        ids = {_conductor_id(*attempt): attempt for attempt in attempts}
        found = await apart(_list(workflow_ids=list(ids), load_output=True)) if ids else []
        return {ids[status.workflow_id]: status for status in found}

    async def begin_anew(self, run_id: str, attempt: int) -> None:
        """Submits an attempt again whose conductor has ended although the run has not."""
        await apart(DBOS.delete_workflow_async(_conductor_id(run_id, attempt)))
        # By whoever is free first: this process may be the one that it failed of.
        await apart(self._submit(run_id, attempt))

    async def begin_batch(
        self, ended: Callable[[], None], run_id: str, attempt: int, indices: Sequence[int]
    ) -> None:
        """Has samples of an attempt at a run evaluated by this process.

        Args:
            ended: Called when it is known to have ended, well or not.
            run_id: The run.
            attempt: The attempt.
            indices: The samples.
        """
        handle = await apart(self._begin_batch(run_id, attempt, indices))
        task = asyncio.create_task(handle.get_result(), context=contextvars.Context())
        self._begun.add(task)

        def forget(task: asyncio.Task[None]) -> None:
            self._begun.discard(task)
            # Why it failed stands in its status.
            if not task.cancelled():
                task.exception()
            ended()

        task.add_done_callback(forget)

    async def enqueue_batch(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        """Has samples of an attempt at a run evaluated by whoever is free first."""
        await apart(self._enqueue_batch(run_id, attempt, indices))

    async def batches(self, run_id: str, attempt: int) -> Sequence[Batch]:
        """The batches of an attempt that wait, are worked on, or failed and were not forgotten."""
        found = await apart(
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
        await apart(DBOS.delete_workflows_async([batch.id for batch in batches]))

    async def forget_batches(self, run_id: str, attempt: int) -> None:
        """Deletes what DBOS keeps of the batches of an attempt that are done."""
        found = await apart(_list(workflow_id_prefix=_batch_prefix(run_id, attempt), status="SUCCESS"))
        for start in range(0, len(found), 500):
            ids = [status.workflow_id for status in found[start : start + 500]]
            await apart(DBOS.delete_workflows_async(ids))

    async def queued_batches(self) -> tuple[int, int]:
        """How many batches of all runs wait in the queue, and how many gateways have taken."""
        found = await apart(_list(name=evaluate_batch.__name__, status=_ONGOING))
        waiting = sum(status.status == "ENQUEUED" for status in found)
        return waiting, len(found) - waiting

    async def under_way(self) -> Sequence[WorkflowStatus]:
        """The workflows that executors work on, whether they live or not."""
        return await apart(_list(status="PENDING"))

    async def take_back(self, status: WorkflowStatus) -> None:
        """Puts a workflow back into its queue; one that was begun without goes to whoever is free first."""
        queue = BATCHES_QUEUE if status.queue_name == BATCHES_QUEUE else RUNS_QUEUE
        await apart(DBOS.resume_workflow_async(status.workflow_id, queue_name=queue))

    async def _begin(self, run_id: str, attempt: int) -> None:
        with SetWorkflowID(_conductor_id(run_id, attempt)):
            await DBOS.start_workflow_async(conduct, run_id, attempt)

    async def _begin_batch(
        self, run_id: str, attempt: int, indices: Sequence[int]
    ) -> WorkflowHandleAsync[None]:
        with SetWorkflowID(_new_batch_id(run_id, attempt)):
            return await DBOS.start_workflow_async(evaluate_batch, run_id, attempt, list(indices))

    async def _submit(self, run_id: str, attempt: int) -> None:
        with SetWorkflowID(_conductor_id(run_id, attempt)):
            await DBOS.enqueue_workflow_async(RUNS_QUEUE, conduct, run_id, attempt)

    async def _enqueue_batch(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        with (
            SetWorkflowID(_new_batch_id(run_id, attempt)),
            # A part of the queue for every run: gateways look into them in a random order.
            SetEnqueueOptions(queue_partition_key=run_id),
        ):
            await DBOS.enqueue_workflow_async(BATCHES_QUEUE, evaluate_batch, run_id, attempt, list(indices))


def is_ours(status: WorkflowStatus) -> bool:
    """Whether this process has the version of the workflows that a workflow was begun with."""
    return status.app_version == CONTRACT


def error_of(status: WorkflowStatus) -> str:
    """What a workflow failed of, in words; empty where it did not."""
    if status.status != _FAILED:
        return ""
    error = status.error
    # What DBOS kept of it has its name as an attribute.
    described = f"{getattr(error, 'name', type(error).__name__)}: {error}"
    return described if len(described) <= _LONGEST_ERROR else f"{described[:_LONGEST_ERROR]}..."


async def _list(
    *, load_input: bool = False, load_output: bool = False, **filters: Any
) -> Sequence[WorkflowStatus]:
    return await DBOS.list_workflows_async(load_input=load_input, load_output=load_output, **filters)


def _batch(status: WorkflowStatus) -> Batch:
    assert status.input is not None
    indices: list[int] = status.input["args"][2]
    executor = str(status.executor_id or "") if status.status == "PENDING" else ""
    return Batch(status.workflow_id, indices, executor, error_of(status))


def _conductor_id(run_id: str, attempt: int) -> str:
    return f"{run_id}:{attempt}"


def _batch_prefix(run_id: str, attempt: int) -> str:
    return f"{run_id}:{attempt}:"


def _new_batch_id(run_id: str, attempt: int) -> str:
    return f"{_batch_prefix(run_id, attempt)}{uuid.uuid4().hex}"
