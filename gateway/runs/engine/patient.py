"""Calls the store of runs until it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gateway.runs.engine.threads import Threads
from gateway.runs.store.base import StoreError

logger = logging.getLogger(__name__)

Given = ParamSpec("Given")
Result = TypeVar("Result")

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
"""The longest wait between tries."""


class Patient:
    """Waits out a store that cannot be used, for as long as the process lives.

    On PostgreSQL that is no longer than its lease; on a full disk it is until somebody makes room.

    Args:
        threads: Where the store is called.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def __call__(
        self, method: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        """Calls a method of the store in a thread, with growing waits between tries."""
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                return await self._threads(method, *args, **kwargs)
            except StoreError as error:
                logger.warning("the store of runs is waited for: %s", error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
