"""Servers for the length of a test, in the test's event loop or in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeVar

from dramaturg.service.contract import Contract
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings

T = TypeVar("T")


@asynccontextmanager
async def serve(*contracts: Contract, **settings: Any) -> AsyncIterator[Server]:
    """Serves contracts on a free port of this machine, in plain text. The server's ``target`` is its address.

    Args:
        contracts: What is served.
        settings: Fields of ``dramaturg.service.settings.ServerSettings``.
    """
    async with Server(contracts, ServerSettings.loopback(**settings)) as server:
        yield server


@contextmanager
def in_thread(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enters an asynchronous context manager in a thread with an event loop, for tests without one.

    Tests that are asynchronous themselves use ``async with`` instead: gRPC's servers and asynchronous
    channels work best in one event loop a process.

    Example:
        >>> with in_thread(serve(FakeJudge().contract())) as server:
        ...     stub = JudgeServiceStub(grpc.insecure_channel(server.target))

    Args:
        manager: For example that of ``serve`` or ``serve_gateway``.
    """
    entered: Future[T] = Future()
    loop, leave = asyncio.new_event_loop(), asyncio.Event()

    async def hold() -> None:
        try:
            async with manager as value:
                entered.set_result(value)
                await leave.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)

    held: Future[None] = Future()

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(hold())
        except BaseException as error:
            held.set_exception(error)
        else:
            held.set_result(None)

    thread = threading.Thread(target=work, name="dramaturg-testing", daemon=True)
    thread.start()
    try:
        yield entered.result()
    finally:
        if not held.done():
            loop.call_soon_threadsafe(leave.set)
        thread.join()
        held.result()


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Waits until a condition holds.

    Args:
        condition: Is asked every 5 ms.
        seconds: The longest wait.

    Raises:
        TimeoutError: The condition does not hold in time.
    """
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.005)


async def as_ready(works: Iterable[Coroutine[Any, Any, T]]) -> AsyncGenerator[T]:
    """Runs coroutines side by side and yields their results, each as soon as it is there."""
    tasks = {asyncio.ensure_future(work) for work in works}
    pending = tasks
    try:
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in tasks:
            task.cancel()
