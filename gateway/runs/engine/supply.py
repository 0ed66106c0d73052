"""Hands out the samples of a batch one by one, taken from the store in small groups."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from gateway.runs.records import SampleWork

Take = Callable[[Sequence[int]], Awaitable[Sequence[SampleWork]]]


class Supply:
    """The samples of a batch that are still pending.

    What is taken counts as begun. So few are taken at once: what a gateway had begun when it died is then
    told nearly as it was.

    Args:
        indices: The batch.
        take: Takes samples from the store; those that are no longer pending are left out.

    Attributes:
        left: The samples that were taken and are not done.
    """

    def __init__(self, indices: Sequence[int], take: Take) -> None:
        self.left: set[int] = set()
        self._indices = deque(indices)
        self._taken: deque[SampleWork] = deque()
        self._take = take
        self._taking = asyncio.Lock()

    async def next(self, group: int) -> SampleWork | None:
        """The next sample; None where there is none.

        Args:
            group: How many are taken at once.
        """
        if self._taken:
            return self._taken.popleft()
        async with self._taking:
            while not self._taken and self._indices:
                wanted = [self._indices.popleft() for _ in range(min(group, len(self._indices)))]
                # Before: whoever is cut meanwhile has taken them all the same.
                self.left.update(wanted)
                self._taken.extend(await self._take(wanted))
                self.left.difference_update(set(wanted) - {sample.index for sample in self._taken})
            return self._taken.popleft() if self._taken else None
