"""The gateway's services: decode, ask the domain, encode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc

from dramaturg.api.evaluation.v1 import evaluation_service_pb2_grpc, judge_directory_service_pb2_grpc
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest, EvaluateDecisionsResponse
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    EvaluateDialoguesRequest,
    EvaluateDialoguesResponse,
    SimulateDialogueRequest,
    SimulateDialogueResponse,
)
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import EvaluateScriptsRequest, EvaluateScriptsResponse
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest, EvaluateGraphsResponse
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    CheckJudgeRequest,
    CheckJudgeResponse,
    ListJudgesRequest,
    ListJudgesResponse,
)
from dramaturg.api.evaluation.v1.texts_pb2 import CompareTextsRequest, CompareTextsResponse
from dramaturg.judge.roles import ROLES
from dramaturg.service.errors import invalid
from gateway.evaluations.calls import Patience
from gateway.evaluations.decisions import DecisionsEvaluation, plan_decisions
from gateway.evaluations.dialogues.evaluation import DialoguesEvaluation
from gateway.evaluations.dialogues.plan import plan_dialogues
from gateway.evaluations.dialogues.simulation import Simulation, plan_simulation
from gateway.evaluations.graphs.evaluation import GraphsEvaluation
from gateway.evaluations.graphs.plan import plan_graphs
from gateway.evaluations.plan import plan_scripts
from gateway.evaluations.scripts import ScriptsEvaluation
from gateway.evaluations.texts.evaluation import TextsEvaluation
from gateway.evaluations.texts.plan import plan_texts
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Registry
from gateway.judges.selection import judge_unknown

ServicerContext = grpc.aio.ServicerContext[Any, Any]


class EvaluationServicer(evaluation_service_pb2_grpc.EvaluationServiceServicer):
    """``evaluation.v1.EvaluationService``."""

    def __init__(self, registry: Registry, directory: JudgeDirectory, patience: Patience) -> None:
        self._registry = registry
        self._directory = directory
        self._patience = patience

    async def EvaluateScripts(
        self, request: EvaluateScriptsRequest, context: ServicerContext
    ) -> AsyncGenerator[EvaluateScriptsResponse]:
        """Streams the evaluation of one task's scripts."""
        del context
        plan = plan_scripts(request, self._registry)
        evaluation = ScriptsEvaluation(plan, self._directory, self._patience)
        async with aclosing(evaluation.events()) as events:
            async for event in events:
                yield event

    async def CompareTexts(
        self, request: CompareTextsRequest, context: ServicerContext
    ) -> AsyncGenerator[CompareTextsResponse]:
        """Streams the comparison of two texts."""
        del context
        plan = plan_texts(request, self._registry)
        evaluation = TextsEvaluation(plan, self._directory, self._patience)
        async with aclosing(evaluation.events()) as events:
            async for event in events:
                yield event

    async def EvaluateDecisions(
        self, request: EvaluateDecisionsRequest, context: ServicerContext
    ) -> AsyncGenerator[EvaluateDecisionsResponse]:
        """Streams what models choose."""
        del context
        evaluation = DecisionsEvaluation(plan_decisions(request, self._registry), self._patience)
        async with aclosing(evaluation.events()) as events:
            async for event in events:
                yield event

    async def SimulateDialogue(
        self, request: SimulateDialogueRequest, context: ServicerContext
    ) -> AsyncGenerator[SimulateDialogueResponse]:
        """Streams a dialogue of a user agent and a simulator."""
        del context
        simulation = Simulation(plan_simulation(request, self._registry), self._patience)
        async with aclosing(simulation.events()) as events:
            async for event in events:
                yield event

    async def EvaluateDialogues(
        self, request: EvaluateDialoguesRequest, context: ServicerContext
    ) -> AsyncGenerator[EvaluateDialoguesResponse]:
        """Streams the evaluation of the replies to one test script."""
        del context
        evaluation = DialoguesEvaluation(plan_dialogues(request, self._registry), self._patience)
        async with aclosing(evaluation.events()) as events:
            async for event in events:
                yield event

    async def EvaluateGraphs(
        self, request: EvaluateGraphsRequest, context: ServicerContext
    ) -> AsyncGenerator[EvaluateGraphsResponse]:
        """Streams the evaluation of one script's graphs."""
        del context
        evaluation = GraphsEvaluation(plan_graphs(request, self._registry), self._patience)
        async with aclosing(evaluation.events()) as events:
            async for event in events:
                yield event


class JudgeDirectoryServicer(judge_directory_service_pb2_grpc.JudgeDirectoryServiceServicer):
    """``evaluation.v1.JudgeDirectoryService``."""

    def __init__(self, registry: Registry, directory: JudgeDirectory) -> None:
        self._registry = registry
        self._directory = directory

    async def ListJudges(self, request: ListJudgesRequest, context: ServicerContext) -> ListJudgesResponse:
        """Asks every judge of the role, or of all roles, at once."""
        del context
        if request.role and request.role not in ROLES:
            raise invalid("role", f"is {request.role!r}, none of the roles {', '.join(ROLES)}")
        judges = self._registry.of_role(request.role) if request.role else self._registry.all()
        return ListJudgesResponse(judges=await asyncio.gather(*map(self._directory.inspect, judges)))

    async def CheckJudge(self, request: CheckJudgeRequest, context: ServicerContext) -> CheckJudgeResponse:
        """Asks one judge."""
        del context
        judge = self._registry.find(request.role, request.judge)
        if judge is None:
            raise judge_unknown(request.role, request.judge, self._registry, "judge")
        return CheckJudgeResponse(judge=await self._directory.inspect(judge))
