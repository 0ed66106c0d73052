"""Serves judges: turns an object that judges into a contract, and a contract into a server.

What holds for every judge is done here once. An empty candidate gets its defined result without the judge
being asked, a criterion that it gave no verdict on abstains, and provenance says the same as the identity.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from dramaturg.api.agents.v1 import (
    commonsense_service_pb2,
    commonsense_service_pb2_grpc,
    critic_service_pb2,
    critic_service_pb2_grpc,
    execute_service_pb2,
    execute_service_pb2_grpc,
    synthesize_service_pb2,
    synthesize_service_pb2_grpc,
)
from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.judging.v1 import script_judge_service_pb2, script_judge_service_pb2_grpc
from dramaturg.judge import protocols, verdicts
from dramaturg.judge.provenance import sign
from dramaturg.judge.steps import reading_of
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, invalid
from dramaturg.service.server import run

ServicerContext = grpc.aio.ServicerContext[Any, Any]


def critic_contract(judge: protocols.Critic) -> Contract:
    """Serves a critic as ``agents.v1.CriticService``."""
    descriptor = critic_service_pb2.DESCRIPTOR.services_by_name["CriticService"]
    add = critic_service_pb2_grpc.add_CriticServiceServicer_to_server
    return judge_contract(descriptor, add, _CriticServicer(judge), judge)


def execute_contract(judge: protocols.Executor) -> Contract:
    """Serves an executor as ``agents.v1.ExecuteService``."""
    descriptor = execute_service_pb2.DESCRIPTOR.services_by_name["ExecuteService"]
    add = execute_service_pb2_grpc.add_ExecuteServiceServicer_to_server
    return judge_contract(descriptor, add, _ExecuteServicer(judge), judge)


def commonsense_contract(judge: protocols.CommonsenseChecker) -> Contract:
    """Serves a commonsense checker as ``agents.v1.CommonsenseService``."""
    descriptor = commonsense_service_pb2.DESCRIPTOR.services_by_name["CommonsenseService"]
    add = commonsense_service_pb2_grpc.add_CommonsenseServiceServicer_to_server
    return judge_contract(descriptor, add, _CommonsenseServicer(judge), judge)


def script_judge_contract(judge: protocols.ScriptJudge) -> Contract:
    """Serves a judge of all criteria as ``judging.v1.ScriptJudgeService``."""
    descriptor = script_judge_service_pb2.DESCRIPTOR.services_by_name["ScriptJudgeService"]
    add = script_judge_service_pb2_grpc.add_ScriptJudgeServiceServicer_to_server
    return judge_contract(descriptor, add, _ScriptJudgeServicer(judge), judge)


def synthesize_contract(judge: protocols.Synthesizer) -> Contract:
    """Serves a synthesizer as ``agents.v1.SynthesizeService``."""
    descriptor = synthesize_service_pb2.DESCRIPTOR.services_by_name["SynthesizeService"]
    add = synthesize_service_pb2_grpc.add_SynthesizeServiceServicer_to_server
    return judge_contract(descriptor, add, _SynthesizeServicer(judge), judge)


def judge_contract(
    descriptor: ServiceDescriptor,
    add: Callable[[Any, grpc.aio.Server], None],
    servicer: Any,
    judge: protocols.Judge,
) -> Contract:
    """Serves a judge by any contract.

    Args:
        descriptor: The service's descriptor.
        add: The generated function that adds a servicer to a server.
        servicer: Has the judge answer.
        judge: Who judges; its identity becomes the contract's.
    """
    return Contract.make(
        descriptor,
        add,
        servicer,
        name=judge.name,
        version=judge.version,
        description=judge.description,
        criteria=judge.criteria,
        capabilities=judge.capabilities,
    )


def serve(
    contract: Contract,
    argv: Sequence[str] | None = None,
    *,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> None:
    """Serves one contract as a process, until SIGTERM or SIGINT.

    Args:
        contract: The contract, made by one of the functions above.
        argv: Command-line arguments (``--host``, ``--port``); by default those of the process.
        interceptors: Further interceptors of gRPC (see ``dramaturg.service.interceptors``).
    """
    run(_SingleContractApp(contract), argv, interceptors=interceptors)


class _SingleContractApp:
    def __init__(self, contract: Contract) -> None:
        self.name = contract.identity.name
        self._contract = contract

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        yield [self._contract]


class _CriticServicer(critic_service_pb2_grpc.CriticServiceServicer):
    def __init__(self, judge: protocols.Critic) -> None:
        self._judge = judge

    async def Critique(
        self, request: critic_service_pb2.CritiqueRequest, context: ServicerContext
    ) -> critic_service_pb2.CritiqueResponse:
        del context
        contract = critic_service_pb2.DESCRIPTOR.services_by_name["CriticService"].full_name
        assessment = await _assess(
            self._judge, contract, request.candidate, lambda: self._judge.critique(request)
        )
        return critic_service_pb2.CritiqueResponse(assessment=assessment)


class _ExecuteServicer(execute_service_pb2_grpc.ExecuteServiceServicer):
    def __init__(self, judge: protocols.Executor) -> None:
        self._judge = judge

    async def Execute(
        self, request: execute_service_pb2.ExecuteRequest, context: ServicerContext
    ) -> execute_service_pb2.ExecuteResponse:
        del context
        contract = execute_service_pb2.DESCRIPTOR.services_by_name["ExecuteService"].full_name
        assessment = await _assess(
            self._judge, contract, request.candidate, lambda: self._judge.execute(request)
        )
        return execute_service_pb2.ExecuteResponse(assessment=assessment)


class _CommonsenseServicer(commonsense_service_pb2_grpc.CommonsenseServiceServicer):
    def __init__(self, judge: protocols.CommonsenseChecker) -> None:
        self._judge = judge

    async def CheckCommonsense(
        self, request: commonsense_service_pb2.CheckCommonsenseRequest, context: ServicerContext
    ) -> commonsense_service_pb2.CheckCommonsenseResponse:
        del context
        contract = commonsense_service_pb2.DESCRIPTOR.services_by_name["CommonsenseService"].full_name
        assessment = await _assess(
            self._judge, contract, request.candidate, lambda: self._judge.check(request)
        )
        return commonsense_service_pb2.CheckCommonsenseResponse(assessment=assessment)


class _ScriptJudgeServicer(script_judge_service_pb2_grpc.ScriptJudgeServiceServicer):
    def __init__(self, judge: protocols.ScriptJudge) -> None:
        self._judge = judge

    async def JudgeScript(
        self, request: script_judge_service_pb2.JudgeScriptRequest, context: ServicerContext
    ) -> script_judge_service_pb2.JudgeScriptResponse:
        del context
        contract = script_judge_service_pb2.DESCRIPTOR.services_by_name["ScriptJudgeService"].full_name
        asked = _asked(request.criteria, self._judge.criteria)
        assessment = await _assess(
            self._judge, contract, request.candidate, lambda: self._judge.judge(request, asked), asked
        )
        return script_judge_service_pb2.JudgeScriptResponse(assessment=assessment)


class _SynthesizeServicer(synthesize_service_pb2_grpc.SynthesizeServiceServicer):
    def __init__(self, judge: protocols.Synthesizer) -> None:
        self._judge = judge

    async def Synthesize(
        self, request: synthesize_service_pb2.SynthesizeRequest, context: ServicerContext
    ) -> synthesize_service_pb2.SynthesizeResponse:
        del context
        contract = synthesize_service_pb2.DESCRIPTOR.services_by_name["SynthesizeService"].full_name
        started = time.perf_counter()
        response = await self._judge.synthesize(request)
        sign(response.provenance, self._judge, contract, started=started)
        return response


async def _assess(
    judge: protocols.Judge,
    contract: str,
    candidate: Candidate,
    ask: Callable[[], Awaitable[Assessment]],
    criteria: Sequence[str] | None = None,
) -> Assessment:
    asked = judge.criteria if criteria is None else criteria
    reading = reading_of(candidate)
    started = time.perf_counter()
    if reading == verdict_pb2.READING_EMPTY:
        assessment = Assessment(verdicts=verdicts.empty_candidate(asked))
    else:
        assessment = await ask()
    sign(assessment.provenance, judge, contract, started=started)
    assessment.reading = reading
    if [verdict.criterion for verdict in assessment.verdicts] != list(asked):
        ordered = verdicts.in_order(assessment.verdicts, asked)
        del assessment.verdicts[:]
        assessment.verdicts.extend(ordered)
    return assessment


def _asked(wanted: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """The criteria to judge: those named, else all.

    Raises:
        ServiceError: The judge does not judge one of them, or one is named twice.
    """
    for index, criterion in enumerate(wanted):
        if criterion not in known:
            raise ServiceError(
                grpc.StatusCode.INVALID_ARGUMENT,
                error_reason_pb2.ERROR_REASON_CRITERION_UNKNOWN,
                f"criteria[{index}] is {criterion!r}; this judge's criteria are {', '.join(known)}",
                metadata={"criterion": criterion},
            )
        if criterion in wanted[:index]:
            raise invalid(f"criteria[{index}]", f"names {criterion!r} again")
    return tuple(wanted or known)
