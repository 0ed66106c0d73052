"""Checks that the judges accept the identity of the gateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JUDGE_HEALTH_REFUSED
from dramaturg.service.concurrency import gather_all
from dramaturg.service.health import ContractHealth
from dramaturg.service.telemetry import tracing
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Registry

logger = logging.getLogger(__name__)


class IdentityChecks:
    """Reports the gateway as not serving while its identity is refused.

    A single judge that refuses it is a fault of that judge. Where no default judge accepts it and at least
    one refuses it, every evaluation would fail: a rollout with a wrong identity stops at its first replica.

    Args:
        registry: The judges. The defaults are asked.
        directory: Asks them.
        health: The health that is changed.
    """

    def __init__(self, registry: Registry, directory: JudgeDirectory, health: ContractHealth) -> None:
        self._registry = registry
        self._directory = directory
        self._health = health

    async def check(self) -> None:
        """Asks the default judges once."""
        defaults = [judge for judge in self._registry.all() if judge.default and judge.entry.panel is None]
        answers = await gather_all([self._directory.inspect(judge) for judge in defaults])
        refusing = [answer for answer in answers if answer.health == JUDGE_HEALTH_REFUSED]
        serving = not refusing or any(answer.HasField("identity") for answer in answers)
        if serving != self._health.serving:
            fields = {"judges": [f"{answer.role}={answer.name}" for answer in refusing]}
            if serving:
                logger.info("judges accept the identity of the gateway")
            else:
                logger.error("judges refuse the identity of the gateway", extra={"fields": fields})
            self._health.serving = serving

    @asynccontextmanager
    async def repeated(self, interval: float) -> AsyncIterator[None]:
        """Checks now and at an interval within an ``async with`` block. An interval of 0: not at all."""
        task = asyncio.create_task(self._repeat(interval)) if interval else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _repeat(self, interval: float) -> None:
        while True:
            with tracing.untraced():
                await self.check()
            await asyncio.sleep(interval)
