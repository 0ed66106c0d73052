from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dramaturg.service.tunnel.outbox import MESSAGE_BYTES, WAITING_BYTES, Outbox


class Stream:
    """Takes messages when it is let."""

    def __init__(self) -> None:
        self.taken: list[Sequence[int]] = []
        self.takes = asyncio.Event()

    async def send(self, items: Sequence[int]) -> None:
        await self.takes.wait()
        self.taken.append(items)


async def sent(outbox: Outbox[int], stream: Stream) -> None:
    """Sends all that waits."""
    outbox.close()
    stream.takes.set()
    await asyncio.wait_for(outbox.run(), 10)


async def test_what_waits_goes_together_and_in_order() -> None:
    stream = Stream()
    outbox = Outbox(stream.send)
    for number in range(100):
        outbox.put(number, 10)
    await sent(outbox, stream)
    assert stream.taken == [list(range(100))]


async def test_a_message_is_no_longer_than_it_may_be_but_for_a_single_item() -> None:
    stream = Stream()
    outbox = Outbox(stream.send)
    half, third = MESSAGE_BYTES // 2, MESSAGE_BYTES // 3
    for number, size in enumerate([half, third, third, 5 * MESSAGE_BYTES, 1]):
        outbox.put(number, size)
    await sent(outbox, stream)
    assert stream.taken == [[0, 1], [2], [3], [4]]


async def test_what_is_put_in_while_a_message_is_sent_goes_with_the_next() -> None:
    stream = Stream()
    outbox = Outbox(stream.send)
    running = asyncio.create_task(outbox.run())
    outbox.put(0, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    outbox.put(1, 1)
    outbox.put(2, 1)
    outbox.close()
    stream.takes.set()
    await asyncio.wait_for(running, 10)
    assert stream.taken == [[0], [1, 2]]


@pytest.mark.parametrize("size", [0, 1000])
async def test_room_is_waited_for_where_much_waits(size: int) -> None:
    stream = Stream()
    outbox = Outbox(stream.send)
    count = 0
    room = asyncio.ensure_future(outbox.room())
    await asyncio.sleep(0)
    while room.done():
        await room
        outbox.put(count, size)
        count += 1
        room = asyncio.ensure_future(outbox.room())
        await asyncio.sleep(0)
        assert count * size <= WAITING_BYTES
        assert count < 100_000, "items without contents take memory too"
    await sent(outbox, stream)
    await asyncio.wait_for(room, 10)
    assert [number for items in stream.taken for number in items] == list(range(count))


async def test_what_the_stream_raises_ends_it() -> None:
    async def refuse(items: Sequence[int]) -> None:
        raise ConnectionError(items)

    outbox = Outbox(refuse)
    outbox.put(1, 1)
    with pytest.raises(ConnectionError):
        await outbox.run()
