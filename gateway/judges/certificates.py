"""The certificates of judges: checked when stored, and compared with the judge when read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import grpc

from dramaturg.api.evaluation.v1.judge_certificate_pb2 import (
    PROPERTY_CONCLUSION_MAY_REPLACE,
    PROPERTY_CONCLUSION_NOT_APPLICABLE,
    PROPERTY_CONCLUSION_NOT_SHOWN,
    CertifiedProperty,
    JudgeCertificate,
    PropertyConclusion,
)
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.results.equivalence import conclude
from dramaturg.service.auth.caller import current
from dramaturg.service.errors import ServiceError, Violation, downstream, invalid_fields
from gateway.judges.directory import JudgeDirectory, panel_identity
from gateway.judges.registrations import JudgeRegistrations
from gateway.judges.registry import Judge

REPLACEMENT = "replacement"
"""The property that is the alternative annotator test."""
_CLOCKS = timedelta(minutes=5)
"""By how much the clocks of a caller and of the gateway may differ."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PLATFORM = ""
"""The tenant of callers without one, whose certificates of configured judges all tenants see."""

Certificates = Mapping[tuple[str, str], Sequence[tuple[str, JudgeCertificate]]]
"""The certificates, each with the tenant that stored it, by the role and the name of the judge."""


class JudgeCertificates:
    """Stores certificates for the current tenant, and finds those that it sees.

    Args:
        registrations: Has the store.
        directory: Asks the judges.
    """

    def __init__(self, registrations: JudgeRegistrations, directory: JudgeDirectory) -> None:
        self._registrations = registrations
        self._directory = directory

    async def put(self, judge: Judge, members: Sequence[Judge], certificate: JudgeCertificate) -> None:
        """Stores the certificate of a judge. See ``JudgeDirectoryService.CertifyJudge``.

        Args:
            judge: The judge.
            members: The members of a panel, as far as they exist. Empty: it is a server.
            certificate: The certificate.
        """
        store = self._registrations.persistent()
        identities = {one.name: await _identity(one) for one in members or [judge]}
        identity = identities.get(judge.name, Identity())
        if judge.entry.panel is not None:
            identity = panel_identity(judge, identities) or Identity()
        violations = [*_differences(certificate, identity), *_contradictions(certificate)]
        if violations:
            raise invalid_fields(violations)
        kept = JudgeCertificate()
        kept.CopyFrom(certificate)
        kept.default_model = "" if kept.model else await self._default_models(judge, members, identity)
        await self._registrations.call(
            store.certificates.put, current().tenant, judge.role.name, judge.name, kept
        )

    async def visible(self) -> Certificates:
        """The certificates that the current tenant sees, its own first."""
        if not self._registrations.is_persistent:
            return {}
        found: dict[tuple[str, str], list[tuple[str, JudgeCertificate]]] = {}
        get = self._registrations.persistent().certificates.of_tenant
        for tenant in dict.fromkeys((current().tenant, _PLATFORM)):
            for key, certificate in (await self._registrations.call(get, tenant)).items():
                found.setdefault(key, []).append((tenant, certificate))
        return found

    async def changes(
        self, certificate: JudgeCertificate, judge: Judge, members: Sequence[Judge], identity: Identity
    ) -> Sequence[str]:
        """What is different now from a certificate, as text; empty: nothing.

        Args:
            certificate: The certificate.
            judge: Its judge.
            members: The members of a panel. Empty: it is a server.
            identity: The identity that the judge states now.
        """
        pairs = {
            "name": (certificate.name, identity.name),
            "version": (certificate.version, identity.version),
        }
        if certificate.default_model:
            now = await self._default_models(judge, members, identity)
            pairs["model"] = certificate.default_model, now or certificate.default_model
        changes = [f"{name} {old}, now {new or 'none'}" for name, (old, new) in pairs.items() if old != new]
        return [*changes, *(f"prompt {name}" for name in _changed_prompts(certificate, identity))]

    async def _default_models(self, judge: Judge, members: Sequence[Judge], identity: Identity) -> str:
        """The default model of a judge, or those of the members of a panel. Empty: none, or not known."""
        table = judge.entry.panel
        if table is None:
            return await self._default_model(judge, identity)
        unnamed = {one.judge for one in table.members if not one.model}
        found = []
        for one in members:
            known = one.identity.known or Identity()
            if one.name in unnamed and CALLS_MODELS in known.capabilities:
                found.append((one.name, await self._default_model(one, known)))
        return ", ".join(" ".join(one) for one in found) if all(model for _, model in found) else ""

    async def _default_model(self, judge: Judge, identity: Identity) -> str:
        """The provider and the model of requests that name none. Empty: none, or not known."""
        if CALLS_MODELS not in identity.capabilities:
            return ""
        try:
            check = await self._directory.check_model(judge, configuration_only=True)
        except ServiceError:
            return ""
        return "" if check is None else f"{check.provider}/{check.model}"


async def _identity(judge: Judge) -> Identity:
    try:
        return await judge.identity.fetch() or Identity()
    except grpc.aio.AioRpcError as error:
        raise downstream(error, f"{judge.role.name}={judge.name}") from error


def _changed_prompts(certificate: JudgeCertificate, identity: Identity) -> Sequence[str]:
    """The prompts of a certificate that the judge has no longer in that form. Empty if it states none."""
    now = identity.prompts
    return [name for name, digest in sorted(certificate.prompts.items()) if now and now.get(name) != digest]


def _differences(certificate: JudgeCertificate, identity: Identity) -> Iterator[Violation]:
    """The facts of a certificate that are not those of the judge."""
    for field in ("name", "version"):
        stated, now = getattr(certificate, field), getattr(identity, field)
        if stated != now:
            yield Violation(f"certificate.{field}", f"is {stated!r}; the judge states {now!r}")
    changed = _changed_prompts(certificate, identity)
    for name, digest in sorted(certificate.prompts.items()):
        if _SHA256.fullmatch(digest) is None:
            yield Violation(f"certificate.prompts[{name!r}]", "is no SHA-256 in lower-case hexadecimal")
        elif name in changed:
            yield Violation(f"certificate.prompts[{name!r}]", "differs from the prompt that the judge states")


def _contradictions(certificate: JudgeCertificate) -> Iterator[Violation]:
    """The fields of a certificate that its other fields, or the time, contradict."""
    if certificate.measure_time.ToDatetime(UTC) > datetime.now(UTC) + _CLOCKS:
        yield Violation("certificate.measure_time", "lies in the future")
    for field in ("failed_count", "abstained_count"):
        if getattr(certificate, field) > certificate.request_count:
            yield Violation(f"certificate.{field}", f"exceeds request_count, {certificate.request_count}")
    names: set[str] = set()
    for index, one in enumerate(certificate.properties):
        place = f"certificate.properties[{index}]"
        if one.name in names:
            yield Violation(f"{place}.name", f"is {one.name!r}, which an earlier property has")
        names.add(one.name)
        measured = one.HasField("value") and one.name != REPLACEMENT
        if measured and not (one.HasField("lower") and one.HasField("upper")):
            yield Violation(f"{place}.value", "needs lower and upper bounds")
        elif measured and not one.lower <= one.value <= one.upper:
            yield Violation(f"{place}.value", f"is {one.value:g}, not from {one.lower:g} to {one.upper:g}")
        elif one.conclusion != (expected := _conclusion(one)):
            stated = PropertyConclusion.Name(one.conclusion)
            words = f"is {stated}; the figures give {PropertyConclusion.Name(expected)}"
            yield Violation(f"{place}.conclusion", words)


def _conclusion(one: CertifiedProperty) -> PropertyConclusion.ValueType:
    """The conclusion that follows from the figures of a property."""
    if not one.HasField("value"):
        return PROPERTY_CONCLUSION_NOT_APPLICABLE
    if one.name == REPLACEMENT:
        return PROPERTY_CONCLUSION_MAY_REPLACE if one.value >= 0.5 else PROPERTY_CONCLUSION_NOT_SHOWN
    name = conclude(one.lower, one.upper, one.tolerance).upper().replace(" ", "_")
    return PropertyConclusion.Value(f"PROPERTY_CONCLUSION_{name}")
