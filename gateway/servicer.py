"""The gateway's services: decode, ask the domain, encode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any

import grpc

from dramaturg.api.evaluation.v1 import judge_directory_service_pb2_grpc
from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunRequest, EstimateRunResponse
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import SummarizeRequest, SummarizeResponse
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceServicer
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    CheckJudgeRequest,
    CheckJudgeResponse,
    ListJudgesRequest,
    ListJudgesResponse,
    ListModelWaitsRequest,
    ListModelWaitsResponse,
    RegisterJudgeRequest,
    RegisterJudgeResponse,
    RemoveJudgeRequest,
    RemoveJudgeResponse,
    UpdateJudgeRequest,
    UpdateJudgeResponse,
)
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge as JudgeEntry
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.service.auth.caller import tenant_of
from dramaturg.service.errors import ServiceError, invalid
from gateway.evaluations.dispatch import Evaluations
from gateway.evaluations.kinds import KINDS, SUMMARIES
from gateway.evaluations.summary import Statistics, Summarizer
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registrations import JudgeRegistrations
from gateway.judges.registry import Judge, Registry
from gateway.judges.selection import judge_unknown

ServicerContext = grpc.aio.ServicerContext[Any, Any]

MAX_SUMMARIZED_SAMPLES = 1_000_000
"""The most samples of one call of ``Summarize``. Decisions and pairs keep a label of each in memory."""


Estimate = Callable[[EstimateRunRequest, str], Awaitable[EstimateRunResponse]]
"""Estimates a run of a tenant."""


def evaluation_servicer(evaluations: Evaluations, estimate: Estimate) -> EvaluationServiceServicer:
    """``evaluation.v1.EvaluationService``: the method of each kind streams the events of an evaluation."""

    async def evaluate(servicer: Any, request: Any, context: ServicerContext) -> AsyncGenerator[Any]:
        del servicer, context
        async with aclosing(evaluations.plan(request).events()) as events:
            async for event in events:
                yield event

    async def summarize(
        servicer: Any, requests: AsyncIterator[SummarizeRequest], context: ServicerContext
    ) -> SummarizeResponse:
        del servicer
        try:
            return await _summarize(requests, evaluations, tenant_of(context))
        except ServiceError:
            # gRPC for Python can report INTERNAL to a caller that still writes when its call ends.
            async for _ in requests:
                pass
            raise

    async def estimate_run(
        servicer: Any, request: EstimateRunRequest, context: ServicerContext
    ) -> EstimateRunResponse:
        del servicer
        return await estimate(request, tenant_of(context))

    methods: dict[str, Any] = {kind.method: evaluate for kind in KINDS}
    methods |= {"Summarize": summarize, "EstimateRun": estimate_run}
    servicer: EvaluationServiceServicer = type("EvaluationServicer", (EvaluationServiceServicer,), methods)()
    return servicer


async def _summarize(
    requests: AsyncIterator[SummarizeRequest], evaluations: Evaluations, tenant: str
) -> SummarizeResponse:
    summarizer: Summarizer | None = None
    received = 0
    async for request in requests:
        if summarizer is None:
            if not request.HasField("options") or request.samples:
                raise invalid("options", "must be the only field of the first message")
            summarizer = Summarizer(SUMMARIES, request.options)
        elif request.HasField("options"):
            raise invalid("options", "must be absent after the first message")
        else:
            received += len(request.samples)
            if received > MAX_SUMMARIZED_SAMPLES:
                raise invalid("samples", f"exceeds {MAX_SUMMARIZED_SAMPLES} samples in all messages")
            await evaluations.threads(tenant, _add_all, summarizer, request.samples)
    if summarizer is None:
        raise invalid("options", "is missing: the stream has no message")
    statistics = Statistics(evaluations.registry, evaluations.threads, tenant)
    return SummarizeResponse(summary=await summarizer.summary(statistics))


def _add_all(summarizer: Summarizer, samples: Iterable[RunSample]) -> None:
    for index, sample in enumerate(samples):
        try:
            summarizer.add(sample)
        except ValueError as error:  # an enum's value that this server does not have
            raise invalid(f"samples[{index}]", f"cannot be summarised: {error}") from error


class JudgeDirectoryServicer(judge_directory_service_pb2_grpc.JudgeDirectoryServiceServicer):
    """``evaluation.v1.JudgeDirectoryService``."""

    def __init__(
        self, registry: Registry, directory: JudgeDirectory, registrations: JudgeRegistrations
    ) -> None:
        self._registry = registry
        self._directory = directory
        self._registrations = registrations

    async def ListJudges(self, request: ListJudgesRequest, context: ServicerContext) -> ListJudgesResponse:
        """Asks every judge of the role, or of all roles, at once."""
        del context
        if request.role and request.role not in self._registry.roles:
            raise invalid("role", f"is {request.role!r}, none of the roles {', '.join(self._registry.roles)}")
        judges = self._registry.of_role(request.role) if request.role else self._registry.all()
        checked = request.model_checked
        inspected = (self._inspect(judge, model_checked=checked) for judge in judges)
        return ListJudgesResponse(judges=await asyncio.gather(*inspected))

    async def ListModelWaits(
        self, request: ListModelWaitsRequest, context: ServicerContext
    ) -> ListModelWaitsResponse:
        """Asks the judges that have calls in progress."""
        del request, context
        return ListModelWaitsResponse(waits=await self._directory.model_waits(self._registry.all()))

    async def CheckJudge(self, request: CheckJudgeRequest, context: ServicerContext) -> CheckJudgeResponse:
        """Asks one judge."""
        del context
        judge = self._registry.find(request.role, request.judge)
        if judge is None:
            raise judge_unknown(request.role, request.judge, self._registry, "judge")
        return CheckJudgeResponse(judge=await self._inspect(judge))

    async def RegisterJudge(
        self, request: RegisterJudgeRequest, context: ServicerContext
    ) -> RegisterJudgeResponse:
        del context
        judge = await self._registrations.register(request.judge)
        return RegisterJudgeResponse(judge=await self._inspect(judge))

    async def UpdateJudge(self, request: UpdateJudgeRequest, context: ServicerContext) -> UpdateJudgeResponse:
        del context
        judge = await self._registrations.update(request.judge, request.update_mask)
        return UpdateJudgeResponse(judge=await self._inspect(judge))

    async def RemoveJudge(self, request: RemoveJudgeRequest, context: ServicerContext) -> RemoveJudgeResponse:
        del context
        await self._registrations.remove(request.role, request.judge)
        return RemoveJudgeResponse()

    async def _inspect(self, judge: Judge, *, model_checked: bool = False) -> JudgeEntry:
        if judge.entry.panel is None:
            entry = await self._directory.inspect(judge, model_checked=model_checked)
        else:
            names = [member.judge for member in judge.entry.panel.members]
            found = [self._registry.find(judge.role.name, name) for name in dict.fromkeys(names)]
            entry = await self._directory.inspect_panel(judge, [one for one in found if one is not None])
        if (registration := self._registrations.registration(judge)) is not None:
            entry.registration.CopyFrom(registration)
        return entry
