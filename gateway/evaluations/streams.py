"""Hands on the events of an evaluation while it is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

Event = TypeVar("Event")
Emit = Callable[[Event], None]
"""Hands on one event; never waits."""


async def stream_events(work: Callable[[Emit[Event]], Coroutine[Any, Any, None]]) -> AsyncGenerator[Event]:
    """Yields each event of some work as it comes, and ends when the work does.

    Closing it, or cancelling whoever iterates, cancels the work.

    Args:
        work: Does the work, with what hands on its events.

    Raises:
        Exception: Whatever the work raises, after the events that came before.
    """
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.create_task(work(events.put_nowait))
    # Also when the work breaks, so that whoever waits for an event gets to see the break.
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        await task
    finally:
        task.cancel()
