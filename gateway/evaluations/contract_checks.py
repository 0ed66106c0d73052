"""Checks of judges in quarantine: a judge returns after an answer that keeps its contract."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    JUDGE_HEALTH_QUARANTINED,
    JUDGE_HEALTH_SERVING,
    JudgeHealth,
)
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeRequest
from dramaturg.judge.batches import encode_candidate
from dramaturg.judge.client import judge_one
from dramaturg.judge.roles import JudgeRole
from dramaturg.judge.steps import parse_candidate
from dramaturg.service.auth.caller import on_behalf_of
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.service.telemetry import tracing
from dramaturg.service.threads import gather_all
from gateway.evaluations.judge_answers import limit_answer
from gateway.evaluations.verdict_normalization import (
    breach_of,
    expected_criteria,
    normalize,
    requested_criteria,
)
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Judge, Registry

logger = logging.getLogger(__name__)

TASK = Task(goal="Make a cup of tea", constraints=["in five minutes"])
STEPS = ("Boil water.", "Put a tea bag into a cup.", "Pour the water over it.")
"""The script that a judge of texts is asked about."""
_CANDIDATE = Candidate(id="check", script=Script(steps=[Step(text=text) for text in STEPS]))
_CRITERION = Criterion(id="clear", definition="The text says what to do. Pass: it does. Fail: it does not.")
_POLL_SECONDS = 1.0


class ContractChecks:
    """Checks the judges in quarantine when they are due, and releases those that keep their contract.

    Every judge must serve its contract (identity and health). A judge of texts is also asked about one small
    script; its verdicts do not matter.

    Args:
        registry: The judges.
        directory: Checks identity and health.
        timeout: The timeout of the question, in seconds.
    """

    def __init__(self, registry: Registry, directory: JudgeDirectory, timeout: float) -> None:
        self._registry = registry
        self._directory = directory
        self._timeout = timeout

    @asynccontextmanager
    async def repeated(self) -> AsyncIterator[None]:
        """Checks within an ``async with`` block."""
        task = asyncio.create_task(self._repeat())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def check(self, judge: Judge) -> str:
        """Checks one judge; returns the fault, or an empty text."""
        entry = await self._directory.inspect(judge)
        if entry.health not in (JUDGE_HEALTH_SERVING, JUDGE_HEALTH_QUARANTINED):
            return f"{JudgeHealth.Name(entry.health).removeprefix('JUDGE_HEALTH_')}: {entry.error}"
        role, identity = judge.role, judge.identity.known
        if not isinstance(role, JudgeRole):
            return ""
        expected = expected_criteria(role, identity, self._registry.criteria)
        request = JudgeRequest(
            task=TASK,
            candidates=[encode_candidate(_CANDIDATE, parse_candidate(_CANDIDATE))],
            criteria=[
                Criterion(id=criterion, definition=role.definitions.get(criterion, ""))
                for criterion in requested_criteria(expected, identity)
            ],
        )
        if not expected:  # a judge of rubrics
            expected = [_CRITERION.id]
            request.criteria.append(_CRITERION)
        try:
            answer = await judge_one(judge.channel, request, timeout=judge.timeout(self._timeout))
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error).message
        except ServiceError as error:
            return error.message
        if not limit_answer(answer, identity):
            return "its answer is too large"
        return breach_of(answer, normalize(answer, expected, identity, len(STEPS)))

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            due = [judge for judge in self._registry.every() if judge.quarantine.is_due]
            await gather_all([self._check(judge) for judge in due])

    async def _check(self, judge: Judge) -> None:
        with tracing.untraced(), on_behalf_of(judge.tenant or ""):
            try:
                fault = await self.check(judge)
            except Exception:
                logger.exception("a judge could not be checked")
                fault = "the check failed"
        if fault:
            judge.quarantine.fail_check(fault)
        else:
            judge.quarantine.release()
