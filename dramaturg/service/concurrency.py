"""Concurrent awaiting with structured cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

Result = TypeVar("Result")


async def gather_all(work: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Returns the results of all coroutines, in order. A failure or a cancellation cancels the others.

    All have ended when it returns or raises, so that no call is paid for whose answer is not used.

    Raises:
        Exception: The first error of a coroutine.
    """
    if len(work) == 1:  # a single coroutine needs no task
        return [await work[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except ExceptionGroup as failures:
        failure = failures.exceptions[0]
        failures.__traceback__ = None  # The group refers to itself by a frame.
    else:
        return [task.result() for task in tasks]
    # An error refers to this frame, and to the group if it is raised where the group is handled. Neither may
    # refer to the error: only a search for garbage, which is rare, would free what its frames know.
    try:
        raise failure
    finally:
        del failure, tasks
