"""Streams of answers: merging, and repeated calls for items that a broken stream lacks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Hashable, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import TypeVar

import grpc

from dramaturg.service.errors import from_rpc_error

MAX_ATTEMPTS = 4
"""The maximum number of calls for the same items."""
MAX_REQUEST_BYTES = 4_000_000
"""The maximum size of the items of one request in bytes. gRPC servers accept 4 MiB by default."""
MAX_UNREQUESTED = 100
"""The maximum number of responses of one call that belong to no requested item."""

_FIRST_BACKOFF_SECONDS = 0.1
_END_OF_STREAM_SECONDS = 1.0

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Response = TypeVar("Response")


def merge_streams(streams: Sequence[AsyncGenerator[Item]]) -> AsyncGenerator[Item]:
    """Reads several streams concurrently and yields their items as they arrive.

    An exception of one stream ends all streams and is raised. Closing the merged stream closes all streams.
    """
    return streams[0] if len(streams) == 1 else _merged(streams)


async def _merged(streams: Sequence[AsyncGenerator[Item]]) -> AsyncGenerator[Item]:
    queue: asyncio.Queue[Item | asyncio.Task[None]] = asyncio.Queue()

    async def read(stream: AsyncGenerator[Item]) -> None:
        async with aclosing(stream):
            async for item in stream:
                queue.put_nowait(item)

    tasks = [asyncio.create_task(read(stream)) for stream in streams]
    for task in tasks:
        task.add_done_callback(queue.put_nowait)
    running = len(tasks)
    try:
        while running:
            next_one = await queue.get()
            if isinstance(next_one, asyncio.Task):
                next_one.result()
                running -= 1
            else:
                yield next_one
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def collect_responses(
    keys: Sequence[Key],
    call: Callable[[Sequence[Key]], AsyncIterable[Response | None]],
    key_of: Callable[[Response], Key | None],
) -> AsyncGenerator[tuple[Key, Response]]:
    """Makes a call that answers items by a stream, and repeats it for items that a broken stream lacks.

    A stream is broken by UNAVAILABLE after its first response; before that, the channel itself repeats the
    call. At most ``MAX_ATTEMPTS`` calls are made. Each item has one response. Repeated, unknown and
    malformed responses are dropped; a stream with more than ``MAX_UNREQUESTED`` of them is cut there.

    Args:
        keys: The items. Calls repeat until each has a response.
        call: Makes the call for some of them, in this order.
        key_of: The item of a response, None where it belongs to none.

    Yields:
        Items and their responses, as they arrive. Items that the stream omits, or had not answered when it
        was cut, are missing.

    Raises:
        grpc.aio.AioRpcError: The call failed, and items are unanswered.
    """
    missing = dict.fromkeys(keys)
    for attempt in range(MAX_ATTEMPTS):
        answered, unrequested = len(missing), 0
        stream = call(list(missing))
        try:
            async for response in stream:
                # gRPC yields None where the bytes do not parse as the response.
                key = None if response is None else key_of(response)
                if response is None or key is None or key not in missing:
                    unrequested += 1
                    if unrequested > MAX_UNREQUESTED:
                        break
                    continue
                del missing[key]
                yield key, response
                if not missing:
                    await _end(stream)
                    break
        except grpc.aio.AioRpcError as error:
            progress = len(missing) < answered
            remote = from_rpc_error(error)
            lost = remote.code is grpc.StatusCode.UNAVAILABLE
            if not (progress and lost) or attempt + 1 == MAX_ATTEMPTS:
                raise
            wait = random.uniform(0, _FIRST_BACKOFF_SECONDS * 2**attempt)  # noqa: S311
            await asyncio.sleep(max(wait, remote.retry_after or 0.0))
        else:
            return
        finally:
            _cancel(stream)


def split_by_size(sizes: Sequence[int], most_items: int, most_bytes: int) -> Iterator[range]:
    """Splits items into consecutive parts of limited number and size. A too large item is alone."""
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (total + size > most_bytes or index - start == most_items):
            yield range(start, index)
            start, total = index, 0
        total += size
    if len(sizes) > start:
        yield range(start, len(sizes))


async def _end(stream: AsyncIterable[object]) -> None:
    """Reads the end of a finished stream, so that the call ends as OK on both sides."""
    with suppress(TimeoutError, grpc.aio.AioRpcError):
        async with asyncio.timeout(_END_OF_STREAM_SECONDS):
            async for _ in stream:
                pass


def _cancel(stream: object) -> None:
    cancel = getattr(stream, "cancel", None)
    if cancel is not None:
        cancel()
