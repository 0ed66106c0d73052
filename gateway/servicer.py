"""The gateway's services: decode, ask the domain, encode."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1 import judge_directory_service_pb2_grpc
from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunRequest, EstimateRunResponse
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import SummarizeRequest, SummarizeResponse
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceServicer
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    CertifyJudgeRequest,
    CertifyJudgeResponse,
    CheckJudgeRequest,
    CheckJudgeResponse,
    JudgeHealth,
    JudgeRegistration,
    ListJudgesRequest,
    ListJudgesResponse,
    ListModelWaitsRequest,
    ListModelWaitsResponse,
    MonitorJudgeRequest,
    MonitorJudgeResponse,
    RegisterJudgeRequest,
    RegisterJudgeResponse,
    RemoveJudgeRequest,
    RemoveJudgeResponse,
    UpdateJudgeRequest,
    UpdateJudgeResponse,
)
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge as JudgeEntry
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.service.auth.caller import tenant_of
from dramaturg.service.errors import invalid
from dramaturg.service.threads import gather_all
from gateway.evaluations.given_samples import NEXT, summarize_given
from gateway.evaluations.kinds import KINDS, Evaluations
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.statistics import call_service
from gateway.judges.certificates import Certificates, JudgeCertificates
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registrations import JudgeRegistrations, no_store
from gateway.judges.registry import Judge, Registry
from gateway.judges.selection import judge_unknown

if TYPE_CHECKING:  # only gateways with a store of runs have them
    from gateway.judges.monitors import JudgeMonitors, Monitors

ServicerContext = grpc.aio.ServicerContext[Any, Any]

MAX_SUMMARIZED_SAMPLES = 1_000_000
"""The most samples of one call of ``Summarize``. Decisions and pairs keep a label of each in memory."""


Estimate = Callable[[EstimateRunRequest, EvaluationScope], Awaitable[EstimateRunResponse]]
"""Estimates a run of the tenant of a scope."""


AnswersOf = Callable[[ServicerContext], list[Usage]]
"""The list that receives the usage of the answers of judges in a call (``Quotas.answers``)."""


def evaluation_servicer(
    evaluations: Evaluations, estimate: Estimate, answers: AnswersOf
) -> EvaluationServiceServicer:
    """``evaluation.v1.EvaluationService``: the method of each kind streams the events of an evaluation."""

    def evaluate(servicer: Any, request: Any, context: ServicerContext) -> AsyncGenerator[Any]:
        del servicer
        scope = EvaluationScope.of_call(evaluations.context.timeouts, answers(context))
        return evaluations.begin(request, scope).events()

    async def summarize(
        servicer: Any, requests: AsyncIterator[SummarizeRequest], context: ServicerContext
    ) -> SummarizeResponse:
        del servicer
        return await _summarize(requests, evaluations, tenant_of(context))

    async def estimate_run(
        servicer: Any, request: EstimateRunRequest, context: ServicerContext
    ) -> EstimateRunResponse:
        del servicer
        return await estimate(
            request, EvaluationScope.of_call(evaluations.context.timeouts, answers(context))
        )

    methods: dict[str, Any] = {kind.method: evaluate for kind in KINDS}
    methods |= {"Summarize": summarize, "EstimateRun": estimate_run}
    servicer: EvaluationServiceServicer = type("EvaluationServicer", (EvaluationServiceServicer,), methods)()
    return servicer


async def _summarize(
    requests: AsyncIterator[SummarizeRequest], evaluations: Evaluations, tenant: str
) -> SummarizeResponse:
    first = await anext(requests, None)
    if first is None:
        raise invalid("options", "is missing: the stream has no message")
    if not first.HasField("options") or first.samples:
        raise invalid("options", "must be the only field of the first message")
    received = 0

    async def answer(question: bytes) -> bytes:
        nonlocal received
        if question != NEXT:
            return await call_service(evaluations.registry, question)
        request = await anext(requests, None)
        if request is None:
            return b""
        if request.HasField("options"):
            raise invalid("options", "must be absent after the first message")
        received += len(request.samples)
        if received > MAX_SUMMARIZED_SAMPLES:
            raise invalid("samples", f"exceeds {MAX_SUMMARIZED_SAMPLES} samples in all messages")
        return NEXT + request.SerializeToString()

    summary = await evaluations.processes.result(tenant, answer, summarize_given, first.options)
    return SummarizeResponse(summary=Summary.FromString(summary))


class JudgeDirectoryServicer(judge_directory_service_pb2_grpc.JudgeDirectoryServiceServicer):
    """``evaluation.v1.JudgeDirectoryService``."""

    def __init__(
        self,
        registry: Registry,
        directory: JudgeDirectory,
        registrations: JudgeRegistrations,
        monitors: JudgeMonitors | None = None,
    ) -> None:
        self._registry = registry
        self._directory = directory
        self._registrations = registrations
        self._monitors = monitors
        self._certificates = JudgeCertificates(registrations, directory)

    async def ListJudges(self, request: ListJudgesRequest, context: ServicerContext) -> ListJudgesResponse:
        """Asks every judge of the role, or of all roles, at once."""
        del context
        if request.role and request.role not in self._registry.roles:
            raise invalid("role", f"is {request.role!r}, none of the roles {', '.join(self._registry.roles)}")
        judges = self._registry.of_role(request.role) if request.role else self._registry.all()
        checked = request.model_checked
        stored = await self._stored()
        inspected = [self._inspect(judge, *stored, model_checked=checked) for judge in judges]
        listed = await gather_all(inspected)
        unusable = [
            _unusable(judge, fault)
            for judge, fault in self._registrations.unusable()
            if request.role in {"", judge.role}
        ]
        return ListJudgesResponse(judges=[*listed, *unusable])

    async def ListModelWaits(
        self, request: ListModelWaitsRequest, context: ServicerContext
    ) -> ListModelWaitsResponse:
        """Asks the judges that have calls in progress."""
        del request, context
        return ListModelWaitsResponse(waits=await self._directory.model_waits(self._registry.all()))

    async def CheckJudge(self, request: CheckJudgeRequest, context: ServicerContext) -> CheckJudgeResponse:
        """Asks one judge."""
        del context
        return CheckJudgeResponse(judge=await self._named(request.role, request.judge))

    async def RegisterJudge(
        self, request: RegisterJudgeRequest, context: ServicerContext
    ) -> RegisterJudgeResponse:
        del context
        await self._registrations.register(request.judge)
        return RegisterJudgeResponse(judge=await self._named(request.judge.role, request.judge.name))

    async def UpdateJudge(self, request: UpdateJudgeRequest, context: ServicerContext) -> UpdateJudgeResponse:
        del context
        await self._registrations.update(request.judge, request.update_mask)
        return UpdateJudgeResponse(judge=await self._named(request.judge.role, request.judge.name))

    async def RemoveJudge(self, request: RemoveJudgeRequest, context: ServicerContext) -> RemoveJudgeResponse:
        del context
        await self._registrations.remove(request.role, request.judge)
        return RemoveJudgeResponse()

    async def CertifyJudge(
        self, request: CertifyJudgeRequest, context: ServicerContext
    ) -> CertifyJudgeResponse:
        del context
        judge = self._registry.find(request.role, request.judge)
        if judge is None:
            raise judge_unknown(request.role, request.judge, self._registry, "judge")
        await self._certificates.put(judge, self._members(judge), request.certificate)
        return CertifyJudgeResponse(judge=await self._named(request.role, request.judge))

    async def MonitorJudge(
        self, request: MonitorJudgeRequest, context: ServicerContext
    ) -> MonitorJudgeResponse:
        del context
        judge = self._registry.find(request.role, request.judge)
        if judge is None:
            raise judge_unknown(request.role, request.judge, self._registry, "judge")
        if self._monitors is None:
            raise no_store("monitors of judges")
        if request.HasField("monitor"):
            await self._monitors.put(judge, request.monitor)
        else:
            await self._monitors.remove(judge)
        return MonitorJudgeResponse(judge=await self._named(request.role, request.judge))

    async def _stored(self) -> tuple[Certificates, Monitors]:
        monitors: Monitors = {} if self._monitors is None else await self._monitors.visible()
        return await self._certificates.visible(), monitors

    async def _named(self, role: str, name: str) -> JudgeEntry:
        """The judge of a role and name that the current tenant sees.

        Raises:
            ServiceError: INVALID_ARGUMENT, ERROR_REASON_JUDGE_UNKNOWN.
        """
        judge = self._registry.find(role, name)
        if judge is not None:
            return await self._inspect(judge, *await self._stored())
        for registered, fault in self._registrations.unusable():
            if (registered.role, registered.name) == (role, name):
                return _unusable(registered, fault)
        raise judge_unknown(role, name, self._registry, "judge")

    def _members(self, judge: Judge) -> list[Judge]:
        """The members of a panel, as far as they exist. Empty: the judge is a server."""
        table = judge.entry.panel
        names = {} if table is None else dict.fromkeys(member.judge for member in table.members)
        found = [self._registry.find(judge.role.name, name) for name in names]
        # A member that has become a panel is none: a panel is no server.
        return [one for one in found if one is not None and one.entry.panel is None]

    async def _inspect(
        self, judge: Judge, certificates: Certificates, monitors: Monitors, *, model_checked: bool = False
    ) -> JudgeEntry:
        members = self._members(judge)
        if judge.entry.panel is None:
            entry = await self._directory.inspect(judge, model_checked=model_checked)
        else:
            entry = await self._directory.inspect_panel(judge, members)
        if (registration := self._registrations.registration(judge)) is not None:
            entry.registration.CopyFrom(registration)
        key = judge.role.name, judge.name
        # Of a registered judge it is that of its tenant; the other one is of a judge of the same name.
        monitored = (one for one in monitors.get(key, ()) if judge.tenant in {None, one.tenant})
        if monitor := next(monitored, None):
            entry.monitor.CopyFrom(monitor.monitor)
        stored = (one for tenant, one in certificates.get(key, ()) if judge.tenant in {None, tenant})
        if certificate := next(stored, None):
            entry.certificate.CopyFrom(certificate)
            if entry.HasField("identity"):
                changes = await self._certificates.changes(certificate, judge, members, entry.identity)
                entry.certificate_changes.extend(changes)
        return entry


def _unusable(judge: JudgeRegistration, fault: str) -> JudgeEntry:
    """The row of a registered judge that is not used."""
    return JudgeEntry(
        name=judge.name,
        role=judge.role,
        target=judge.target,
        health=JudgeHealth.JUDGE_HEALTH_NOT_SERVING,
        error=f"the registration cannot be used: {fault}",
        expected_version=judge.expected_version,
        owner=judge.owner,
        labels=judge.labels,
        registration=judge,
    )
