"""Calls of the store from the event loop."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import ParamSpec, TypeVar

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.errors import ServiceError
from gateway.runs.engine.threads import Threads
from gateway.runs.store.base import StoreError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_THREADS = 16
_RETRY_SECONDS = 2.0

_log = logging.getLogger(__name__)


class Background:
    """Runs blocking calls in threads of its own: a store that hangs must not take those of everybody."""

    def __init__(self) -> None:
        self._threads = Threads(_THREADS)

    def close(self) -> None:
        """Lets go of the threads."""
        self._threads.close()

    async def call(
        self, work: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """The result of a call.

        Raises:
            ServiceError: UNAVAILABLE, ERROR_REASON_STORE_UNAVAILABLE, in place of a StoreError.
        """
        try:
            return await self._threads(work, *args, **kwargs)
        except StoreError as error:
            # Where the store is and what it says is for whoever runs the gateway.
            _log.error("%s", error)
            raise ServiceError(
                grpc.StatusCode.UNAVAILABLE,
                error_reason_pb2.ERROR_REASON_STORE_UNAVAILABLE,
                "the store of runs cannot be used now",
                retry_after=_RETRY_SECONDS,
            ) from error

    async def stream(self, items: Iterator[Result]) -> AsyncGenerator[Result]:
        """The items of an iterator that blocks, one after another."""
        end = object()
        while (item := await self.call(next, items, end)) is not end:
            yield item  # type: ignore[misc] # mypy does not take out the end
