"""The identities and the health of judges, and whether judges accept the identity of the gateway."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import judge_directory_service_pb2
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    JUDGE_HEALTH_REFUSED,
    JudgeHealth,
    JudgePanel,
    JudgeShadow,
    PanelMember,
    PanelRule,
)
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge as JudgeEntry
from dramaturg.api.generation.v1.generation_service_pb2 import ProviderCheck
from dramaturg.api.identity.v1.identity_service_pb2 import (
    CheckModelRequest,
    CheckModelResponse,
    Identity,
    ListModelWaitsRequest,
    ListModelWaitsResponse,
)
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.judge.protocols import ANY_CRITERION, CALLS_MODELS
from dramaturg.judge.roles import JudgeRole, Role
from dramaturg.service.auth.caller import current
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.service.health import ContractHealth
from dramaturg.service.logs import without_credentials
from dramaturg.service.telemetry import tracing
from dramaturg.service.threads import gather_all
from gateway.judges.identity import MAX_TEXT_CHARACTERS, deviation
from gateway.judges.registry import Judge, Registry

logger = logging.getLogger(__name__)

MODEL_CHECK_SECONDS = 10.0
"""The timeout of a check of a model."""
WAITS_SECONDS = 2.0
"""The time between two requests for the waits of models."""
_SERVING = health_pb2.HealthCheckResponse.SERVING


class Finding(NamedTuple):
    """The health of a judge, and the reason where it is not serving."""

    health: JudgeHealth.ValueType
    error: str = ""


class JudgeDirectory:
    """Checks the identities and the health of judges.

    Args:
        timeout: The timeout of a request for health or waits, in seconds.
    """

    def __init__(self, *, timeout: float) -> None:
        self._timeout = timeout
        self._waits: Sequence[str] = ()
        self._waits_until = 0.0

    @staticmethod
    async def identity(judge: Judge) -> Identity | None:
        """The identity of a judge; None where the call fails."""
        return await judge.identity.current()

    async def check_model(
        self,
        judge: Judge,
        model: str = "",
        *,
        configuration_only: bool = False,
        check_usage: bool = False,
    ) -> ProviderCheck | None:
        """Checks the model of a judge; None where the judge calls none, or does not know the method.

        Args:
            judge: The judge.
            model: The model. Empty: that of requests that name none.
            configuration_only: Whether its provider is not called.
            check_usage: Whether it is also found out if answers state token counts, if need be by a call.

        Raises:
            ServiceError: The judge does not answer, or has no model.
        """
        request = CheckModelRequest(
            contract=judge.role.contract,
            model=model,
            configuration_only=configuration_only,
            check_usage=check_usage,
        )
        try:
            response: CheckModelResponse | None = await IdentityServiceStub(judge.channel).CheckModel(
                request, timeout=MODEL_CHECK_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise from_rpc_error(error) from error
        return response.check if response is not None and response.HasField("check") else None

    async def model_waits(self, judges: Iterable[Judge]) -> Sequence[str]:
        """The rate limits that models of judges with calls in progress wait for, one for each provider.

        Judges that do not answer are left out. Answers are cached for ``WAITS_SECONDS``.
        """
        now = time.monotonic()
        if now >= self._waits_until:
            self._waits_until = now + WAITS_SECONDS
            by_target = {judge.target: judge for judge in judges if judge.turns.is_busy}
            found = await gather_all([self._ask_waits(judge) for judge in by_target.values()])
            # Judges of one generation service report the same waits a moment apart.
            waits = {wait.partition(",")[0]: wait for answers in found for wait in answers}
            self._waits = tuple(waits.values())
        return self._waits

    async def _ask_waits(self, judge: Judge) -> Sequence[str]:
        request = ListModelWaitsRequest(contract=judge.role.contract)
        try:
            response: ListModelWaitsResponse | None = await IdentityServiceStub(judge.channel).ListModelWaits(
                request, timeout=self._timeout
            )
        except grpc.aio.AioRpcError:
            return ()
        return () if response is None else response.waits

    async def inspect(self, judge: Judge, *, model_checked: bool = False) -> JudgeEntry:
        """Requests the identity and health of a judge. Failures of the judge are part of the result.

        Args:
            judge: The judge.
            model_checked: Whether its model is checked.
        """
        started = time.perf_counter()
        identity, status = await asyncio.gather(
            judge.identity.fetch(), self._ask_health(judge), return_exceptions=True
        )
        finding = _classify(judge, identity, status)
        calls_models = isinstance(identity, Identity) and CALLS_MODELS in identity.capabilities
        if calls_models and finding.health == judge_directory_service_pb2.JUDGE_HEALTH_SERVING:
            finding = await self._check_configuration(judge) or finding
        entry = JudgeEntry(
            name=judge.name,
            role=judge.role.name,
            target=judge.target,
            default_for_role=judge.default,
            health=finding.health,
            error=finding.error,
            expected_version=judge.entry.expect_version,
            owner=judge.entry.owner,
            labels=judge.entry.labels,
        )
        if (shadow := judge.entry.shadow) is not None:
            entry.shadow.CopyFrom(JudgeShadow(of=shadow.of, model=shadow.model, queue_size=shadow.queue_size))
        if isinstance(identity, Identity):
            entry.identity.CopyFrom(identity)
        entry.latency.FromNanoseconds(round((time.perf_counter() - started) * 1e9))
        if model_checked and calls_models:
            try:
                check = await self.check_model(judge)
            except ServiceError as error:
                entry.model_error = f"{error.code.name}: {without_credentials(error.message)}"
            else:
                if check is not None:
                    entry.model_check.CopyFrom(check)
        return entry

    async def inspect_panel(self, panel: Judge, members: Sequence[Judge]) -> JudgeEntry:
        """Checks the members of a panel. It serves if as many as its quorum do.

        Args:
            panel: The panel.
            members: The judges that its members name, as far as they exist.
        """
        table = panel.entry.panel
        assert table is not None
        inspected = await gather_all([self.inspect(member) for member in members])
        health = {one.name: one.health for one in inspected}
        states = {
            member.judge: JudgeHealth.Name(health[member.judge]).removeprefix("JUDGE_HEALTH_")
            if member.judge in health
            else "absent"
            for member in table.members
        }
        serving = sum(states[member.judge] == "SERVING" for member in table.members)
        entry = JudgeEntry(
            name=panel.name,
            role=panel.role.name,
            default_for_role=panel.default,
            owner=panel.entry.owner,
            labels=panel.entry.labels,
            health=judge_directory_service_pb2.JUDGE_HEALTH_SERVING,
            panel=JudgePanel(
                rule=PanelRule.Value(f"PANEL_RULE_{table.rule.upper().replace('-', '_')}"),
                members=[
                    PanelMember(judge=one.judge, model=one.model, weight=one.weight, threshold=one.threshold)
                    for one in table.members
                ],
                quorum=0 if table.rule == "cascade" else table.least_votes,
            ),
        )
        identities = {one.name: one.identity for one in inspected if one.HasField("identity")}
        if (identity := panel_identity(panel, identities)) is not None:
            entry.identity.CopyFrom(identity)
        if serving < table.least_votes:
            entry.health = judge_directory_service_pb2.JUDGE_HEALTH_NOT_SERVING
            entry.error = (
                f"{serving} of {len(table.members)} members serve, the quorum is {table.least_votes}"
            )
        out = [f"{name} {state}" for name, state in states.items() if state != "SERVING"]
        if out:
            entry.error = f"{entry.error}: {', '.join(out)}" if entry.error else ", ".join(out)
        return entry

    async def _check_configuration(self, judge: Judge) -> Finding | None:
        try:
            await self.check_model(judge, configuration_only=True)
        except ServiceError as error:
            if error.reason == error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN:
                return Finding(judge_directory_service_pb2.JUDGE_HEALTH_NOT_SERVING, error.message)
        return None

    async def _ask_health(self, judge: Judge) -> int:
        request = health_pb2.HealthCheckRequest(service=judge.role.contract)
        response = await health_pb2_grpc.HealthStub(judge.channel).Check(request, timeout=self._timeout)
        return int(response.status)


def panel_identity(panel: Judge, identities: Mapping[str, Identity]) -> Identity | None:
    """The identity of a panel: its version is its rule with the versions of its members.

    Its prompts are those of the members, as "member/prompt"; it has each criterion and capability that a
    member has. A version that is too long is the SHA-256 of its text.

    Args:
        panel: The panel.
        identities: The identities of its members by name.

    Returns:
        The identity. None: that of a member is missing.
    """
    table = panel.entry.panel
    assert table is not None
    found = Identity(name=panel.name, contract=panel.role.contract)
    stages = []
    for one in table.members:
        if one.judge not in identities:
            return None
        identity = identities[one.judge]
        model = f"@{one.model}" if one.model else ""
        weight = f" x {one.weight:g}" if one.weight != 1 else ""
        threshold = f" from {one.threshold:g}" if one.threshold else ""
        stages.append(f"{one.judge}{model} ({identity.name} {identity.version}){weight}{threshold}")
        found.criteria.extend(name for name in identity.criteria if name not in found.criteria)
        found.capabilities.extend(name for name in identity.capabilities if name not in found.capabilities)
        found.prompts.update({f"{one.judge}/{name}": digest for name, digest in identity.prompts.items()})
    rule = table.rule if table.rule == "cascade" else f"{table.rule}, quorum {table.least_votes}"
    version = f"{rule}: {', '.join(stages)}"
    too_long = len(version) > MAX_TEXT_CHARACTERS
    found.version = hashlib.sha256(version.encode()).hexdigest() if too_long else version
    return found


def _classify(
    judge: Judge, identity: Identity | BaseException | None, status: int | BaseException
) -> Finding:
    """The health of a judge by its answers to both calls."""
    for answer in (identity, status):
        if isinstance(answer, BaseException) and not isinstance(answer, grpc.aio.AioRpcError):
            if not isinstance(answer, Exception):
                raise answer
            # The list of all judges does not fail for one of them.
            logger.error("%s=%s cannot be called", judge.role.name, judge.name, exc_info=answer)
            cause = f"it cannot be called ({type(answer).__name__}); the log of the gateway has the cause"
            return Finding(judge_directory_service_pb2.JUDGE_HEALTH_UNREACHABLE, cause)
    identity_code = identity.code() if isinstance(identity, grpc.aio.AioRpcError) else None
    health_code = status.code() if isinstance(status, grpc.aio.AioRpcError) else None
    if identity_code in _UNREACHABLE or (identity_code and health_code in _UNREACHABLE):
        error = identity if identity_code in _UNREACHABLE else status
        return Finding(judge_directory_service_pb2.JUDGE_HEALTH_UNREACHABLE, _describe(error))
    if identity_code in _REFUSED:
        refusal = f"it refuses the identity of the gateway: {_describe(identity)}"
        return Finding(judge_directory_service_pb2.JUDGE_HEALTH_REFUSED, refusal)
    serving = status == _SERVING
    if identity_code is not None and not serving:
        return _wrong(f"it does not implement {judge.role.contract}")
    if isinstance(identity, Identity) and identity.contract != judge.role.contract:
        return _wrong(f"it says that it implements {identity.contract!r}, not {judge.role.contract}")
    if isinstance(identity, Identity) and not _judges_for(judge.role, identity):
        return _wrong(
            f"it judges none of the criteria of {judge.role.name}, only {', '.join(identity.criteria)}"
        )
    if health_code is grpc.StatusCode.NOT_FOUND:
        return _wrong(f"its health service does not know {judge.role.contract}")
    if isinstance(status, int) and not serving:
        known = health_pb2.HealthCheckResponse.ServingStatus.DESCRIPTOR.values_by_number.get(status)
        name = f"the unknown status {status}" if known is None else known.name
        return Finding(judge_directory_service_pb2.JUDGE_HEALTH_NOT_SERVING, f"its health is {name}")
    if isinstance(identity, Identity) and (deviates := deviation(judge.entry.expect_version, identity)):
        return Finding(judge_directory_service_pb2.JUDGE_HEALTH_WRONG_VERSION, f"it {deviates}")
    if reason := judge.quarantine.reason(current().tenant):
        return Finding(judge_directory_service_pb2.JUDGE_HEALTH_QUARANTINED, reason)
    # A server that answers with its identity and has no health service is serving.
    return Finding(judge_directory_service_pb2.JUDGE_HEALTH_SERVING)


def _judges_for(role: Role, identity: Identity) -> bool:
    """Whether a judge declares a criterion of its role, if that has criteria, or declares none."""
    if not isinstance(role, JudgeRole) or ANY_CRITERION in identity.capabilities or not identity.criteria:
        return True
    return not role.criteria or any(criterion in identity.criteria for criterion in role.criteria)


_UNREACHABLE = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
_REFUSED = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})


def _wrong(error: str) -> Finding:
    return Finding(judge_directory_service_pb2.JUDGE_HEALTH_WRONG_CONTRACT, error)


def _describe(error: object) -> str:
    assert isinstance(error, grpc.aio.AioRpcError)
    # A judge may quote the token that it is called with.
    return f"{error.code().name}: {without_credentials(error.details() or 'no details')}"


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
