"""Keeps the queues open while there are runs to work on, and no longer.

DBOS asks its database several times a second for work, for timeouts, for queues that are new. That is 3 %
of a processor core, for which a gateway without runs has no use.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from gateway.runs.engine.bells import Bell
from gateway.runs.store.base import StoreError

logger = logging.getLogger(__name__)

REST_AFTER_SECONDS = 10.0
"""After so long without a run the queues are closed."""
_LOOK_SECONDS = 1.0


class Attendance:
    """Is at work while there is something to do, and rests when there was nothing for a while.

    Args:
        work: Opens the queues within an ``async with`` block.
        wanted: Says whether there is something to do.
        rest_look_seconds: How often that is asked while it rests, unless it is called.
    """

    def __init__(
        self,
        work: Callable[[], AbstractAsyncContextManager[None]],
        wanted: Callable[[], Awaitable[bool]],
        rest_look_seconds: float,
    ) -> None:
        self._work = work
        self._wanted = wanted
        self._rest_look_seconds = rest_look_seconds
        self._bell = Bell()

    def call(self) -> None:
        """Has it look at once whether there is something to do."""
        self._bell.ring()

    async def begin(self) -> AsyncExitStack:
        """Goes to work. Closing what is returned ends it."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._work())
            return stack.pop_all()

    async def keep(self, at_work: AsyncExitStack) -> None:
        """Rests and works for ever.

        Args:
            at_work: What ``begin`` returned.
        """
        while True:
            try:
                async with at_work:
                    await self._until_nothing_is_left()
            except Exception:
                logger.exception("the queues could not be closed in order")
            at_work = await self._begin_when_wanted()

    async def _begin_when_wanted(self) -> AsyncExitStack:
        while True:
            await self._until_wanted()
            try:
                return await self.begin()
            except Exception:
                # Such as an error of the database below DBOS: it may be well again.
                logger.exception("runs cannot be worked on")
                await self._bell.wait(_LOOK_SECONDS)

    async def _until_nothing_is_left(self) -> None:
        last = time.monotonic()
        while time.monotonic() - last < REST_AFTER_SECONDS:
            await self._bell.wait(_LOOK_SECONDS)
            if await self._is_wanted(unknown=True):
                last = time.monotonic()

    async def _until_wanted(self) -> None:
        while not await self._is_wanted(unknown=False):
            await self._bell.wait(self._rest_look_seconds)

    async def _is_wanted(self, *, unknown: bool) -> bool:
        try:
            return await self._wanted()
        except StoreError as error:
            logger.warning("it is not known whether there are runs: %s", error)
            return unknown
