"""Threads of the gateway for blocking calls and long computations."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from gateway.fair_semaphore import FairSemaphore, FairShare

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


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
        """Returns the result of a blocking call, which has the context of its caller."""
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, lambda: context.run(function, *args, **kwargs)
        )

    def close(self) -> None:
        """Ends the threads after their current calls; calls that wait are cancelled."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class TenantThreads:
    """Threads in which tenants take turns. Bound to one event loop.

    A free thread goes to the tenant that holds fewest. No tenant holds all threads, so that a call of another
    one begins at once. The default is for long calls: reports, exports and summaries of one tenant delay
    neither short calls nor the long calls of another tenant by more than one piece each.

    Args:
        size: The number of threads.
        per_tenant: The most threads of one tenant.
    """

    def __init__(self, size: int = 2, per_tenant: int = 1) -> None:
        self._threads = ThreadPool(size)
        self._turns = FairSemaphore(size)
        self._per_tenant = per_tenant
        self._shares: dict[str, FairShare] = {}
        self._calls: Counter[str] = Counter()

    async def __call__(
        self,
        tenant: str,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Returns the result of a blocking call, in the fair turn of a tenant."""
        share = self._shares.get(tenant)
        if share is None:
            share = self._shares[tenant] = self._turns.open_share(tenant, self._per_tenant)
        self._calls[tenant] += 1
        try:
            async with self._turns.slot(share):
                return await self._threads(function, *args, **kwargs)
        finally:
            self._calls[tenant] -= 1
            if not self._calls[tenant]:
                del self._calls[tenant], self._shares[tenant]
                self._turns.close_share(share)

    def close(self) -> None:
        """Ends the threads after their current calls; calls that wait are cancelled."""
        self._threads.close()
