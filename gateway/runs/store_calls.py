"""Calls the blocking run store from the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.errors import ServiceError
from gateway.fair_semaphore import FairSemaphore
from gateway.runs.store.base import StoreError

logger = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

FIRST_WAIT_SECONDS = 0.1
MAX_WAIT_SECONDS = 5.0
"""The longest wait between attempts of a ``RetryingCaller``."""

_READ_THREADS = 16
_HEAVY_THREADS = 2
_RETRY_AFTER_SECONDS = 2.0


class ThreadPool:
    """Runs blocking calls in threads of its own.

    The default executor of the event loop does not serve: DBOS replaces it and shuts it down.

    Args:
        size: The number of threads.
    """

    def __init__(self, size: int) -> None:
        self._executor = ThreadPoolExecutor(size, thread_name_prefix="runs")

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


class RetryingCaller:
    """Retries store calls until they succeed.

    On PostgreSQL an outage that outlasts the lease ends the process; on a full disk calls wait for space.

    Args:
        threads: Runs the calls.
    """

    def __init__(self, threads: ThreadPool) -> None:
        self._threads = threads

    async def __call__(
        self, method: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Returns the result of a store call, retried with exponential backoff."""
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                return await self._threads(method, *args, **kwargs)
            except StoreError as error:
                logger.warning("a call of the run store is retried: %s", error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, MAX_WAIT_SECONDS)


class ServiceCaller:
    """Calls the store for RPCs and maps its errors.

    Calls that read a whole run have threads of their own, in which tenants take turns: reports and exports of
    one tenant delay neither short calls nor another tenant's reports by more than one piece each.
    """

    def __init__(self) -> None:
        self._threads = ThreadPool(_READ_THREADS)
        self._heavy_threads = ThreadPool(_HEAVY_THREADS)
        self._turns = FairSemaphore(_HEAVY_THREADS)

    def close(self) -> None:
        """Ends the threads."""
        self._threads.close()
        self._heavy_threads.close()

    async def call(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Returns the result of a short blocking call.

        Raises:
            ServiceError: UNAVAILABLE, ERROR_REASON_STORE_UNAVAILABLE, for a StoreError.
        """
        try:
            return await self._threads(function, *args, **kwargs)
        except StoreError as error:
            raise store_unavailable(error) from error

    async def call_heavy(
        self,
        tenant: str,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Returns the result of a long blocking call, in the fair turn of a tenant.

        Raises:
            ServiceError: As ``call`` does.
        """
        async with self._turns.single(tenant):
            try:
                return await self._heavy_threads(function, *args, **kwargs)
            except StoreError as error:
                raise store_unavailable(error) from error

    async def stream(self, tenant: str, items: Iterator[Result]) -> AsyncGenerator[Result]:
        """Yields the items of a blocking iterator, each in a fair turn of a tenant."""
        end = object()
        while (item := await self.call_heavy(tenant, next, items, end)) is not end:
            yield item  # type: ignore[misc] # mypy keeps the sentinel in the type

    async def exhaust(self, tenant: str, steps: Iterator[object]) -> None:
        """Runs a blocking iterator to its end, each step in a fair turn of a tenant."""
        async for _ in self.stream(tenant, steps):
            pass


def store_unavailable(error: StoreError) -> ServiceError:
    """The error of a call that needs the store while it is unavailable; logs the reason."""
    # The address of the store and its message are for operators, not for callers.
    logger.error("%s", error)
    return ServiceError(
        grpc.StatusCode.UNAVAILABLE,
        error_reason_pb2.ERROR_REASON_STORE_UNAVAILABLE,
        "the run store is unavailable",
        retry_after=_RETRY_AFTER_SECONDS,
    )
