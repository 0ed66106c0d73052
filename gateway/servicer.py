"""The gateway's services: decode, ask the domain, encode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc

from dramaturg.api.evaluation.v1 import judge_directory_service_pb2_grpc
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceServicer
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    CheckJudgeRequest,
    CheckJudgeResponse,
    ListJudgesRequest,
    ListJudgesResponse,
)
from dramaturg.service.errors import invalid
from gateway.evaluations.dispatch import Evaluations
from gateway.evaluations.kinds import KINDS
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Registry
from gateway.judges.selection import judge_unknown

ServicerContext = grpc.aio.ServicerContext[Any, Any]


def evaluation_servicer(evaluations: Evaluations) -> EvaluationServiceServicer:
    """``evaluation.v1.EvaluationService``: the method of each kind streams the events of an evaluation."""

    async def evaluate(servicer: Any, request: Any, context: ServicerContext) -> AsyncGenerator[Any]:
        del servicer, context
        async with aclosing(evaluations.plan(request).events()) as events:
            async for event in events:
                yield event

    methods = {kind.method: evaluate for kind in KINDS}
    servicer: EvaluationServiceServicer = type("EvaluationServicer", (EvaluationServiceServicer,), methods)()
    return servicer


class JudgeDirectoryServicer(judge_directory_service_pb2_grpc.JudgeDirectoryServiceServicer):
    """``evaluation.v1.JudgeDirectoryService``."""

    def __init__(self, registry: Registry, directory: JudgeDirectory) -> None:
        self._registry = registry
        self._directory = directory

    async def ListJudges(self, request: ListJudgesRequest, context: ServicerContext) -> ListJudgesResponse:
        """Asks every judge of the role, or of all roles, at once."""
        del context
        if request.role and request.role not in self._registry.roles:
            raise invalid("role", f"is {request.role!r}, none of the roles {', '.join(self._registry.roles)}")
        judges = self._registry.of_role(request.role) if request.role else self._registry.all()
        return ListJudgesResponse(judges=await asyncio.gather(*map(self._directory.inspect, judges)))

    async def CheckJudge(self, request: CheckJudgeRequest, context: ServicerContext) -> CheckJudgeResponse:
        """Asks one judge."""
        del context
        judge = self._registry.find(request.role, request.judge)
        if judge is None:
            raise judge_unknown(request.role, request.judge, self._registry, "judge")
        return CheckJudgeResponse(judge=await self._directory.inspect(judge))
