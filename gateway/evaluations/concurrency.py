"""Concurrent awaiting with structured cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

Result = TypeVar("Result")


async def gather_all(work: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results of all, in order. One that breaks, or cancelling, cancels the others.

    Raises:
        Exception: What one alone raises.
        ExceptionGroup: What one of several raises.
    """
    if len(work) == 1:  # nothing goes on beside it, so that it needs no task
        return [await work[0]]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
    return [task.result() for task in tasks]
