from __future__ import annotations

import asyncio
import threading

from dramaturg.service import threads
from dramaturg.service.auth import caller

LONG = threads.MAX_INLINE_LENGTH + 1


async def test_long_texts_are_parsed_in_a_thread_and_short_ones_in_the_event_loop() -> None:
    here = threading.get_ident()
    assert await threads.parse(LONG - 1, threading.get_ident) == here
    assert await threads.parse(LONG, threading.get_ident) != here


async def test_a_tenant_with_many_long_texts_leaves_a_thread_to_others() -> None:
    done = threading.Event()

    async def parse(tenant: str) -> bool:
        with caller.on_behalf_of(tenant):
            return await threads.parse(LONG, done.wait, 20)

    waiting = [asyncio.create_task(parse("a")) for _ in range(5)]
    await asyncio.sleep(0)
    with caller.on_behalf_of("b"):
        await asyncio.wait_for(threads.parse(LONG, str), 10)
    assert not any(task.done() for task in waiting)
    done.set()
    assert all(await asyncio.gather(*waiting))
