"""Work off the event loop, which ends when nobody waits for it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from services.roles.app import Abandoned, Worker
from services.roles.clusters import Checkpoint


async def test_it_gives_what_the_work_gives_and_raises_what_it_raises() -> None:
    worker = Worker()
    assert await worker.run(lambda checkpoint: threading.current_thread() is threading.main_thread()) is False

    def fail(checkpoint: Checkpoint) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await worker.run(fail)
    assert await worker.run(lambda checkpoint: 1) == 1


async def test_cancelled_work_ends_at_its_next_checkpoint_and_then_the_next_begins() -> None:
    worker = Worker()
    begun, ended = threading.Event(), threading.Event()

    def endless(checkpoint: Checkpoint) -> None:
        begun.set()
        try:
            while True:
                checkpoint()
        except Abandoned:
            ended.set()
            raise

    first = asyncio.create_task(worker.run(endless))
    await asyncio.to_thread(begun.wait, 10)
    second = asyncio.create_task(worker.run(lambda checkpoint: ended.is_set()))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second is True
