"""The two workflows, as DBOS finds them by name when it begins one, here or after a death.

A workflow here is one coroutine without recorded steps. What it did is in the store of runs, where beginning
it again finds it; DBOS decides who runs it, once at a time, and that somebody does.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from dbos import DBOS

Result = TypeVar("Result")


class Hands(Protocol):
    """Does what the workflows of this process are about."""

    async def conduct(self, run_id: str, attempt: int) -> None:
        """Sees a run through, from wherever it stands."""

    async def evaluate_batch(self, run_id: str, attempt: int, indices: Sequence[int]) -> None:
        """Evaluates those of a run's samples that are still pending."""

    def are_busy(self) -> bool:
        """Whether any of it is under way."""


_working: list[Hands] = []


@contextmanager
def working(hands: Hands) -> Iterator[None]:
    """Lets the workflows of this process be done within a ``with`` block.

    Raises:
        RuntimeError: Another does them.
    """
    if _working:
        raise RuntimeError("this process has an engine of runs already: DBOS is one a process")
    _working.append(hands)
    try:
        yield
    finally:
        _working.remove(hands)


# Never given up: a sample that kills whoever evaluates it is told by its own count (SampleWork.tries).
@DBOS.workflow(name="conduct", max_recovery_attempts=None)
async def conduct(run_id: str, attempt: int) -> None:
    """Sees a run through."""
    await apart(_hands().conduct(run_id, attempt))


@DBOS.workflow(name="evaluate_batch", max_recovery_attempts=None)
async def evaluate_batch(run_id: str, attempt: int, indices: list[int]) -> None:
    """Evaluates samples of a run."""
    await apart(_hands().evaluate_batch(run_id, attempt, indices))


async def apart(work: Coroutine[Any, Any, Result]) -> Result:
    """Does something outside of the workflow that asks for it, so that DBOS does not record it as a step."""
    return await asyncio.get_running_loop().create_task(work, context=contextvars.Context())


def _hands() -> Hands:
    if not _working:
        # Claimed while the process stops: whoever has it next begins it again.
        raise asyncio.CancelledError
    return _working[0]
