"""Threads of the gateway for blocking calls and long computations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from gateway.fair_semaphore import FairSemaphore

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_HEAVY_THREADS = 2


class ThreadPool:
    """Runs blocking calls in threads of its own.

    The default executor of the event loop does not serve: DBOS replaces it and shuts it down.

    Args:
        size: The number of threads.
    """

    def __init__(self, size: int) -> None:
        self._executor = ThreadPoolExecutor(size, thread_name_prefix="gateway")

    async def __call__(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Returns the result of a blocking call."""
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, lambda: function(*args, **kwargs)
        )

    def close(self) -> None:
        """Ends the threads after their current calls; calls that wait are cancelled."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class TenantThreads:
    """Threads for long calls, in which tenants take turns.

    Reports, exports and summaries of one tenant delay neither short calls nor the long calls of another
    tenant by more than one piece each. Bound to one event loop.
    """

    def __init__(self) -> None:
        self._threads = ThreadPool(_HEAVY_THREADS)
        self._turns = FairSemaphore(_HEAVY_THREADS)

    async def __call__(
        self,
        tenant: str,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Returns the result of a long blocking call, in the fair turn of a tenant."""
        async with self._turns.single(tenant):
            return await self._threads(function, *args, **kwargs)

    def close(self) -> None:
        """Ends the threads after their current calls; calls that wait are cancelled."""
        self._threads.close()
