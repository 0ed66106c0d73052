"""Calls the blocking run store from the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import ParamSpec, TypeVar

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.database import StoreError
from dramaturg.service.auth.caller import current
from dramaturg.service.errors import ServiceError
from dramaturg.service.threads import TenantThreads, ThreadPool

logger = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

FIRST_WAIT_SECONDS = 0.1
MAX_WAIT_SECONDS = 5.0
"""The longest wait between attempts of a ``RetryingCaller``."""

_READ_THREADS = 8
_READ_THREADS_PER_TENANT = 4
_RETRY_AFTER_SECONDS = 2.0


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
        call: Callable[[], Result] = partial(method, *args, **kwargs)
        while True:
            try:
                return await self._threads(call)
            except StoreError as error:
                call = error.repeat or call
                logger.warning("a call of the run store is retried: %s", error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, MAX_WAIT_SECONDS)


class ServiceCaller:
    """Calls the store for RPCs and maps its errors.

    Args:
        heavy_threads: The threads of long calls.
    """

    def __init__(self, heavy_threads: TenantThreads) -> None:
        self._threads = TenantThreads(_READ_THREADS, _READ_THREADS_PER_TENANT)
        self._heavy_threads = heavy_threads

    def close(self) -> None:
        """Ends the threads of short calls."""
        self._threads.close()

    async def call(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Returns the result of a short blocking call, in the fair turn of the caller's tenant.

        Raises:
            ServiceError: UNAVAILABLE, ERROR_REASON_STORE_UNAVAILABLE, for a StoreError.
        """
        try:
            return await self._threads(current().tenant, function, *args, **kwargs)
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
        try:
            return await self._heavy_threads(tenant, function, *args, **kwargs)
        except StoreError as error:
            raise store_unavailable(error) from error

    async def exhaust(self, tenant: str, steps: Iterator[object]) -> None:
        """Runs a blocking iterator to its end, each step in a fair turn of a tenant."""
        end = object()
        while await self.call_heavy(tenant, next, steps, end) is not end:
            pass


def not_found(what: str, name: str) -> ServiceError:
    """The error of what does not exist or belongs to another tenant; callers cannot tell which.

    Args:
        what: What it is, for example "run".
        name: Its id.
    """
    return ServiceError(
        grpc.StatusCode.NOT_FOUND,
        error_reason_pb2.ERROR_REASON_RESOURCE_NOT_FOUND,
        f"{what} {name!r} does not exist",
        metadata={"name": name},
    )


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
