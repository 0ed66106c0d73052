"""A Deployment behind its headless Service: how its replicas come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tests.cluster.names import Names
from tests.cluster.replicas import Replica
from tests.k8s.rendered import Object


class Deployment:
    """The replicas of one service.

    Args:
        declared: The rendered object.
        make: Makes a replica that is not started.
        names: Where its name leads to its replicas.
    """

    def __init__(self, declared: Object, make: Callable[[], Replica], names: Names) -> None:
        self.name: str = declared["metadata"]["name"]
        self.replicas: list[Replica] = []
        self._min_ready_seconds = declared["spec"].get("minReadySeconds", 0)
        self._make = make
        self._names = names
        strategy = declared["spec"]["strategy"]["rollingUpdate"]
        assert strategy == {"maxSurge": 1, "maxUnavailable": 0}, (
            "roll() replaces one by one, the new one first"
        )

    async def scale(self, count: int) -> None:
        """Starts so many replicas."""
        await asyncio.gather(*(self._add() for _ in range(count)))

    async def roll(self) -> None:
        """Replaces its replicas one by one. An old one's end is not waited for before the next is replaced.

        Returns when all old ones have ended.
        """
        async with asyncio.TaskGroup() as ending:
            for old in list(self.replicas):
                await self._add(settle=True)
                ending.create_task(self._end(old))

    async def replace(self, program: Sequence[str] | None) -> None:
        """Replaces all its replicas by one.

        Args:
            program: What it runs in the place of the image's program. ``None``: the image's.
        """
        old = list(self.replicas)
        await self._add(program, settle=True)
        await asyncio.gather(*(self._end(replica) for replica in old))

    async def _end(self, replica: Replica) -> None:
        self.replicas.remove(replica)
        self._names.remove(self.name, replica.address)
        await replica.terminate()

    async def _add(self, program: Sequence[str] | None = None, *, settle: bool = False) -> None:
        replica = self._make()
        await replica.start(self._names, program)
        self.replicas.append(replica)
        self._names.add(self.name, replica.address)
        if settle:
            await asyncio.sleep(self._min_ready_seconds)
