"""Threads for blocking calls and long computations, and the turns of tenants."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Concatenate, ParamSpec, TypeVar

from dramaturg.service.fair_semaphore import FairSemaphore, FairShare

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class ThreadPool:
    """Runs blocking calls in threads of its own.

    The default executor of the event loop does not serve: DBOS replaces it and shuts it down.

    Args:
        size: The number of threads.
    """

    def __init__(self, size: int) -> None:
        self._executor = ThreadPoolExecutor(size, thread_name_prefix="calls")

    async def __call__(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Returns the result of a blocking call, which has the context of its caller."""
        return await asyncio.wrap_future(self.submit(function, *args, **kwargs))

    def submit(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        """Begins a blocking call, which has the context of its caller."""
        context = copy_context()
        return self._executor.submit(lambda: context.run(function, *args, **kwargs))

    def start(self, function: Callable[[], object]) -> None:
        """Makes a blocking call without waiting for it: here if the threads have ended."""
        try:
            self._executor.submit(function)
        except RuntimeError:
            function()

    def close(self) -> None:
        """Ends the threads after their current calls; calls that wait are cancelled."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Turn:
    """A slot that a tenant holds."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def end(self) -> None:
        """Returns the slot; has no effect the second time."""
        release, self._release = self._release, None
        if release is not None:
            release()


class TenantTurns:
    """Slots in which tenants take turns. Bound to one event loop while a slot is held.

    A free slot goes to the tenant that holds fewest, and no tenant holds more than its share.

    Args:
        size: The number of slots.
        per_tenant: The most slots of one tenant.
    """

    def __init__(self, size: int, per_tenant: int) -> None:
        self._slots = FairSemaphore(size)
        self._per_tenant = per_tenant
        self._shares: dict[str, FairShare] = {}
        self._calls: Counter[str] = Counter()

    @property
    def has_waiting(self) -> bool:
        """Whether a call waits for a slot."""
        return self._slots.has_waiting

    async def take(self, tenant: str) -> Turn:
        """Waits for a slot. End the turn."""
        share = self._shares.get(tenant)
        if share is None:
            share = self._shares[tenant] = self._slots.open_share(tenant, self._per_tenant)
        self._calls[tenant] += 1
        try:
            await self._slots.acquire(share)
        except BaseException:
            self._leave(tenant, share)
            raise

        def release() -> None:
            self._slots.release(share)
            self._leave(tenant, share)

        return Turn(release)

    def _leave(self, tenant: str, share: FairShare) -> None:
        self._calls[tenant] -= 1
        if not self._calls[tenant]:
            del self._calls[tenant], self._shares[tenant]
            self._slots.close_share(share)


class TenantThreads:
    """Threads in which tenants take turns.

    No tenant holds all threads, so that a call of another one begins at once; a thread is held until its
    call returns, also where the caller has cancelled it. The default is for long calls: those of one tenant
    delay neither short calls nor the long calls of another tenant by more than one piece each.

    Args:
        size: The number of threads.
        per_tenant: The most threads of one tenant.
    """

    def __init__(self, size: int = 2, per_tenant: int = 1) -> None:
        self._threads = ThreadPool(size)
        self._turns = TenantTurns(size, per_tenant)

    async def __call__(
        self,
        tenant: str,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Returns the result of a blocking call, in the fair turn of a tenant."""
        turn = await self._turns.take(tenant)
        try:
            call = self._threads.submit(function, *args, **kwargs)
            result = await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            if call.cancel() or call.done():
                turn.end()
            else:
                _when_done(call, turn)
            raise
        except BaseException:
            turn.end()
            del call  # It refers to its error, and this to the call by this frame.
            raise
        turn.end()
        return result

    def close(self) -> None:
        """Ends the threads after their current calls; calls that wait are cancelled."""
        self._threads.close()


def _when_done(call: Future[Result], turn: Turn) -> None:
    """Ends a turn in the current event loop when a call has returned."""
    loop = asyncio.get_running_loop()

    def end(_: Future[Result]) -> None:
        try:
            loop.call_soon_threadsafe(turn.end)
        except RuntimeError:  # the loop has ended
            turn.end()

    call.add_done_callback(end)


class StoppedError(Exception):
    """A computation ended early, since no caller waits for its result."""


IsStopped = Callable[[], bool]
"""Whether the caller of a computation was cancelled."""


async def until_cancelled(
    run: Callable[[Callable[[], Result]], Awaitable[Result]],
    function: Callable[Concatenate[IsStopped, Parameters], Result],
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> Result:
    """Runs a long computation in a thread, which ends soon after its caller is cancelled.

    Args:
        run: Runs a blocking call in a thread, for example ``asyncio.to_thread``.
        function: The computation. It calls its first argument between its parts, and raises StoppedError or
            returns once that is True.
        args: Its further arguments.
        kwargs: Its keyword arguments.
    """
    stopped = threading.Event()
    try:
        return await run(lambda: function(stopped.is_set, *args, **kwargs))
    finally:
        stopped.set()
