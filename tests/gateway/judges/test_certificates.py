"""Certificates of judges that a gateway keeps, as callers see them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.judge_certificate_pb2 import (
    PROPERTY_CONCLUSION_MAY_REPLACE,
    PROPERTY_CONCLUSION_NOT_APPLICABLE,
    PROPERTY_CONCLUSION_NOT_SHOWN,
    PROPERTY_CONCLUSION_OUTSIDE,
    PROPERTY_CONCLUSION_WITHIN,
    CertifiedProperty,
    JudgeCertificate,
)
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    PANEL_RULE_WEIGHTED,
    JudgePanel,
    JudgeRegistration,
    PanelMember,
)
from dramaturg.api.generation.v1.generation_service_pb2 import ProviderCheck
from dramaturg.client import DramaturgClient
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.judge.roles import CRITIC
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.service.settings import ChannelSettings
from dramaturg.testing import FakeJudge, serve
from tests.gateway.judges.test_registrations import directory, fields_of, gateway, token_of
from tests.support.auth import holder, token_settings

PROMPTS = {"critic": "ab" * 32}


def certificate(**fields: Any) -> JudgeCertificate:
    made = JudgeCertificate(
        name="theirs",
        version="1.0.0",
        prompts=PROMPTS,
        case_sets=["cd" * 32],
        request_count=12,
        properties=[
            CertifiedProperty(
                name="position",
                conclusion=PROPERTY_CONCLUSION_WITHIN,
                tolerance=0.1,
                value=0,
                lower=-0.05,
                upper=0.05,
                case_count=60,
            ),
            CertifiedProperty(name="self-preference", conclusion=PROPERTY_CONCLUSION_NOT_APPLICABLE),
            CertifiedProperty(
                name="replacement", conclusion=PROPERTY_CONCLUSION_MAY_REPLACE, tolerance=0.2, value=0.5
            ),
        ],
    )
    made.measure_time.FromJsonString("2026-01-02T03:04:05Z")
    made.MergeFrom(JudgeCertificate(**fields))
    return made


class Models:
    """A model that can be another one."""

    model = "small"

    async def check_model(self, model: str, **_: Any) -> ProviderCheck:
        return ProviderCheck(provider="local", model=model or self.model)

    async def model_waits(self) -> list[str]:
        return []


def judge(models: Models | None = None) -> Contract:
    capabilities = (CALLS_MODELS,) if models else ()
    fake = FakeJudge(name="theirs", criteria=CRITIC.criteria, capabilities=capabilities)
    contract = replace(fake.contract(), models=models)
    contract.identity.prompts.update(PROMPTS)
    return contract


async def test_a_certificate_is_kept_and_goes_stale_and_with_its_judge(store_url: str) -> None:
    models = Models()
    contract = judge(models)
    async with serve(contract) as theirs:
        async with directory(store_url) as target, DramaturgClient(target) as client:
            registration = JudgeRegistration(role="critic", name="theirs", target=theirs.target)
            await client.register_judge(registration)
            stored = certificate(default_model="forged")
            kept = await client.certify_judge("critic", "theirs", stored)
            assert kept.certificate == certificate(default_model="local/small")
            assert not kept.certificate_changes
        async with directory(store_url) as target, DramaturgClient(target) as client:
            models.model = "large"
            contract.identity.version = "2.0.0"
            contract.identity.prompts["critic"] = "ef" * 32
            listed = (await client.list_judges("critic"))[-1]
            assert listed.certificate == kept.certificate
            assert list(listed.certificate_changes) == [
                "version 1.0.0, now 2.0.0",
                "model local/small, now local/large",
                "prompt critic",
            ]
            # A requested model stays what it is when the default changes.
            contract.identity.version = "1.0.0"
            contract.identity.prompts["critic"] = PROMPTS["critic"]
            kept = await client.certify_judge("critic", "theirs", certificate(model="local/small"))
            assert (kept.certificate.model, kept.certificate.default_model) == ("local/small", "")
            models.model = "small"
            assert not (await client.check_judge("critic", "theirs")).certificate_changes
            await client.remove_judge("critic", "theirs")
            await client.register_judge(registration)
            assert not (await client.check_judge("critic", "theirs")).HasField("certificate")


def first(change: Callable[[CertifiedProperty], object]) -> Callable[[JudgeCertificate], object]:
    return lambda made: change(made.properties[0])


def outside(made: CertifiedProperty) -> None:
    made.lower, made.value, made.upper = 0.2, 0.3, 0.4


FORGERIES: dict[str, tuple[Callable[[JudgeCertificate], object], str]] = {
    "another judge": (lambda made: setattr(made, "name", "other"), "name"),
    "another version": (lambda made: setattr(made, "version", "9"), "version"),
    "another prompt": (lambda made: made.prompts.update(critic="ef" * 32), "prompts['critic']"),
    "no prompt": (lambda made: made.prompts.update(critic="none"), "prompts['critic']"),
    "no set": (lambda made: made.case_sets.append("x"), "case_sets[1]"),
    "the future": (lambda made: made.measure_time.FromJsonString("2999-01-01T00:00:00Z"), "measure_time"),
    "no request": (lambda made: setattr(made, "request_count", 0), "request_count"),
    "more failures than requests": (lambda made: setattr(made, "failed_count", 13), "failed_count"),
    "a better conclusion": (first(outside), "properties[0].conclusion"),
    "no bounds": (first(lambda made: made.ClearField("lower")), "properties[0].value"),
    "a value beside its bounds": (first(lambda made: setattr(made, "value", 0.06)), "properties[0].value"),
    "no number": (first(lambda made: setattr(made, "value", float("nan"))), "properties[0].value"),
    "a test that was not made": (first(lambda made: made.ClearField("value")), "properties[0].conclusion"),
    "people replaced": (lambda made: setattr(made.properties[2], "value", 0.4), "properties[2].conclusion"),
    "a property twice": (lambda made: made.properties.append(made.properties[1]), "properties[3].name"),
    "too many properties": (
        lambda made: made.properties.extend(
            CertifiedProperty(name=str(i), conclusion=PROPERTY_CONCLUSION_NOT_APPLICABLE) for i in range(30)
        ),
        "properties",
    ),
    "a long text": (first(lambda made: setattr(made, "figure", "x" * 501)), "properties[0].figure"),
}


async def test_a_forged_or_oversized_certificate_is_refused_with_its_field(sqlite_url: str) -> None:
    async with (
        serve(judge()) as theirs,
        directory(sqlite_url) as target,
        DramaturgClient(target) as client,
    ):
        registration = JudgeRegistration(role="critic", name="theirs", target=theirs.target)
        await client.register_judge(registration)
        for name, (forge, field) in FORGERIES.items():
            made = certificate()
            forge(made)
            with pytest.raises(ServiceError) as caught:
                await client.certify_judge("critic", "theirs", made)
            assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT, name
            assert fields_of(caught.value) == [f"certificate.{field}"], name
        assert not (await client.check_judge("critic", "theirs")).HasField("certificate")
        honest = certificate()
        outside(honest.properties[0])
        honest.properties[0].conclusion = PROPERTY_CONCLUSION_OUTSIDE
        honest.properties[2].value, honest.properties[2].conclusion = 0.4, PROPERTY_CONCLUSION_NOT_SHOWN
        assert (await client.certify_judge("critic", "theirs", honest)).certificate == honest

        with pytest.raises(ServiceError) as unknown:
            await client.certify_judge("critic", "nobody", certificate())
        assert unknown.value.reason == error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN
        registration.name, registration.target = "absent", "127.0.0.1:1"
        await client.register_judge(registration)
        with pytest.raises(ServiceError) as gone:
            await client.certify_judge("critic", "absent", certificate())
        assert gone.value.code is grpc.StatusCode.UNAVAILABLE


async def test_the_certificate_of_a_panel_is_stale_when_a_member_or_the_rule_changes(sqlite_url: str) -> None:
    models = Models()
    contract = judge(models)
    async with (
        serve(contract) as theirs,
        directory(sqlite_url) as target,
        DramaturgClient(target) as client,
    ):
        await client.register_judge(JudgeRegistration(role="critic", name="theirs", target=theirs.target))
        members = [PanelMember(judge="theirs"), PanelMember(judge="fake", weight=2)]
        panel = JudgePanel(rule=PANEL_RULE_WEIGHTED, members=members, quorum=1)
        registration = JudgeRegistration(role="critic", name="both", panel=panel)
        version = (await client.register_judge(registration)).identity.version
        assert version == "weighted, quorum 1: theirs (theirs 1.0.0), fake (fake-critic 1.0.0) x 2"
        made = certificate(name="both", version=version)
        made.prompts.clear()
        made.prompts["theirs/critic"] = PROMPTS["critic"]
        for wrong, field in (
            ({"name": "theirs"}, "name"),
            ({"version": "1.0.0"}, "version"),
            ({"prompts": {"theirs/critic": "ef" * 32}}, "prompts['theirs/critic']"),
        ):
            forged = JudgeCertificate()
            forged.CopyFrom(made)
            forged.MergeFrom(JudgeCertificate(**wrong))
            with pytest.raises(ServiceError) as caught:
                await client.certify_judge("critic", "both", forged)
            assert fields_of(caught.value) == [f"certificate.{field}"]
        kept = await client.certify_judge("critic", "both", made)
        assert kept.certificate.default_model == "theirs local/small"
        assert not kept.certificate_changes
        models.model = "large"
        contract.identity.version = "2.0.0"
        contract.identity.prompts["critic"] = "ef" * 32
        assert list((await client.check_judge("critic", "both")).certificate_changes) == [
            f"version {version}, now {version.replace('theirs 1.0.0', 'theirs 2.0.0')}",
            "model theirs local/small, now theirs local/large",
            "prompt theirs/critic",
        ]
        models.model, contract.identity.version = "small", "1.0.0"
        contract.identity.prompts["critic"] = PROMPTS["critic"]
        assert not (await client.check_judge("critic", "both")).certificate_changes
        registration.panel.members[1].weight = 3
        (changed,) = (await client.update_judge(registration)).certificate_changes
        assert changed == f"version {version}, now {version.replace('x 2', 'x 3')}"


async def test_a_panel_with_an_absent_member_has_no_identity_and_many_members_a_digest(
    sqlite_url: str,
) -> None:
    async with directory(sqlite_url) as target, DramaturgClient(target) as client:
        await client.register_judge(JudgeRegistration(role="critic", name="absent", target="127.0.0.1:1"))
        panel = JudgePanel(members=[PanelMember(judge="fake"), PanelMember(judge="absent")], quorum=1)
        listed = await client.register_judge(JudgeRegistration(role="critic", name="both", panel=panel))
        assert not listed.HasField("identity")
        with pytest.raises(ServiceError) as caught:
            await client.certify_judge("critic", "both", certificate())
        assert caught.value.code is grpc.StatusCode.UNAVAILABLE
        models = [PanelMember(judge="fake", model=f"model-{number:040}") for number in range(12)]
        registration = JudgeRegistration(role="critic", name="many", panel=JudgePanel(members=models))
        version = (await client.register_judge(registration)).identity.version
        assert len(version) == 64
        registration.panel.members[0].model = "other"
        assert (await client.update_judge(registration)).identity.version != version


async def test_a_tenant_sees_its_own_certificates_and_the_platforms(tmp_path: Path) -> None:
    callers = [
        holder(tenant, role) for tenant, role in (("a", "operator"), ("b", "operator"), ("a", "viewer"))
    ]
    url = f"sqlite:///{tmp_path}/runs.sqlite3"

    def made(count: int) -> JudgeCertificate:
        return certificate(name="fake-critic", prompts=PROMPTS, request_count=count)

    async with gateway(url) as target, DramaturgClient(target) as client:
        await client.certify_judge("critic", "fake", made(7))
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(gateway(url, auth=token_settings(tmp_path, *callers)))
        alice, bob, viewer = [
            await stack.enter_async_context(
                DramaturgClient(target, ChannelSettings(token_file=token_of(tmp_path, caller)))
            )
            for caller in callers
        ]
        await alice.certify_judge("critic", "fake", made(8))
        seen = [(await one.check_judge("critic", "fake")).certificate for one in (alice, viewer, bob)]
        assert [one.request_count for one in seen] == [8, 8, 7]
        with pytest.raises(ServiceError) as denied:
            await viewer.certify_judge("critic", "fake", made(9))
        assert denied.value.code is grpc.StatusCode.PERMISSION_DENIED
        # The platform's judge of the same name is another one.
        registration = JudgeRegistration(role="critic", name="theirs", target="127.0.0.1:1")
        await bob.register_judge(registration)
        assert not (await bob.check_judge("critic", "theirs")).HasField("certificate")
