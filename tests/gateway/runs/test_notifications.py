"""Listeners are notified of changes of their run alone, of progress only if they ask for it."""

from __future__ import annotations

import asyncio
import time

from gateway.runs.notifications import ChangeNotifier


async def test_a_notification_wakes_the_waiter_and_the_next_wait() -> None:
    notifier = ChangeNotifier()
    with (
        notifier.listen("a") as first,
        notifier.listen("a") as second,
        notifier.listen("b") as other,
    ):
        notifier.notify("a")
        async with asyncio.timeout(1):
            await first.wait(30)
            await second.wait(30)
        task = asyncio.create_task(other.wait(30))
        await asyncio.sleep(0)
        notifier.notify("a")
        await asyncio.sleep(0.01)
        assert not task.done()
        notifier.notify("b")
        await task
    notifier.notify("a")


async def test_progress_notifies_only_listeners_of_progress() -> None:
    notifier = ChangeNotifier()
    with notifier.listen("a") as orchestrator, notifier.listen("a", progress=True) as watcher:
        notifier.notify_progress("a")
        async with asyncio.timeout(10):
            await watcher.wait(60)
        # It was not notified.
        begun = time.monotonic()
        await orchestrator.wait(0.05)
        assert time.monotonic() - begun >= 0.05
        notifier.notify("a")
        async with asyncio.timeout(10):
            await asyncio.gather(orchestrator.wait(60), watcher.wait(60))
