"""The two queues of workflows: opened for a process, and closed in order."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager

from dbos import DBOS

from gateway.runs.engine.database import engine_config
from gateway.runs.engine.durable import Hands, working
from gateway.runs.engine.window import BATCHES_PER_GATEWAY
from gateway.runs.engine.workflows import BATCHES_QUEUE, RUNS_QUEUE
from gateway.runs.settings import RunsSettings

_RUNS_POLL_SECONDS = 0.5
_BATCHES_POLL_SECONDS = 0.2
_NO_LOG = logging.NullHandler()


@asynccontextmanager
async def open_queues(settings: RunsSettings, executor: str, hands: Hands) -> AsyncIterator[None]:
    """Begins to take work from the queues; at the end takes no more and waits for batches under way.

    Whoever closes them makes the batches end (see ``RunEngine.open``); conductors are cut, and begun again by
    whoever has them next.

    Args:
        settings: Where the queues are.
        executor: The name of this process among those that share them.
        hands: Does the work.
    """
    with ExitStack() as at_work:
        at_work.enter_context(working(hands))
        # With a handler there DBOS adds none of its own, and its logs are written like all others.
        logging.getLogger("dbos").addHandler(_NO_LOG)
        try:
            DBOS(config=engine_config(settings, executor))
            # Within the running loop: else workflows run on a loop of their own, where no channel works.
            DBOS.launch()
            await _register()
            yield
        finally:
            # First: what is claimed from now on is left to others.
            at_work.close()
            await _close(math.ceil(settings.drain_timeout_seconds) + 5 if hands.are_busy() else 0)


async def _register() -> None:
    """Declares the queues. DBOS keeps them in the database, for all gateways.

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


async def _close(seconds: int) -> None:
    """Claims nothing more, and waits so long at most for what is under way."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as outside:
        closing = loop.run_in_executor(outside, lambda: DBOS.destroy(workflow_completion_timeout_sec=seconds))
        # DBOS made its own threads the loop's, and ends them; the gateway may go on, and be at work again.
        loop.set_default_executor(ThreadPoolExecutor())
        await closing
    # Workflows that ended meanwhile had them made the loop's again.
    loop.set_default_executor(ThreadPoolExecutor())
