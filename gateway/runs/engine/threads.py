"""Threads for what blocks: the store of runs, the reading of datasets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Threads:
    """A pool of its own, not the event loop's: DBOS replaces and ends that one.

    Args:
        count: How many threads.
    """

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="runs")

    async def __call__(
        self, work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        """Does in a thread what blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Ends the threads once they have done what they are at."""
        self._pool.shutdown(wait=False, cancel_futures=True)
