"""Judges with an expected version, and with a connection, timeout and limit of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic import ValidationError

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JudgeHealth
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.client import DramaturgClient
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings, SettingsError
from dramaturg.testing import serve, serve_gateway
from gateway.evaluations.judge_answers import UNEXPECTED_VERSION
from gateway.settings import JudgeEntry
from tests.support.certificates import Authority
from tests.support.gateway import Fake, agents, all_pass, evaluate_result, scripts_request


@asynccontextmanager
async def gateway_with(critic: Fake, **fields: Any) -> AsyncIterator[DramaturgClient]:
    """A client of a gateway whose critic has further fields in its entry."""
    async with AsyncExitStack() as stack:
        entries = []
        for fake in agents(critic):
            target = (await stack.enter_async_context(serve(fake.contract()))).target
            own = fields if fake.role == "critic" else {}
            entries.append({"role": fake.role, "name": "fake", "target": target, **own})
        gateway = await stack.enter_async_context(serve_gateway(judges=entries))
        yield await stack.enter_async_context(DramaturgClient(gateway.target))


async def evaluated(critic: Fake, **fields: Any) -> tuple[ScriptsResult, Any]:
    """The result of one script, and the critic as the directory lists it."""
    async with gateway_with(critic, **fields) as client:
        result = await evaluate_result(client, scripts_request(1))
        return result, (await client.list_judges("critic"))[0]


def assessment(result: ScriptsResult, role: str = "critic") -> Assessment:
    return next(one.assessment for one in result.candidates[0].assessments if one.role == role)


@pytest.mark.parametrize("policy", [{}, {"version_policy": "fail"}, {"version_policy": "pause"}])
async def test_a_judge_of_another_version_is_not_called(policy: dict[str, str]) -> None:
    asked = []

    async def note(request: Any) -> Any:
        asked.append(request)
        return all_pass("critic")

    result, listed = await evaluated(Fake("critic", note), expect_version=">=1.4,<2", **policy)
    verdicts = assessment(result).verdicts
    assert {verdict.abstain_reason for verdict in verdicts} == {verdict_pb2.ABSTAIN_REASON_CALL_REJECTED}
    assert verdicts[0].rationale == (
        "The judge 'fake' states the version '1.0.0'; expect_version is '>=1.4,<2'."
    )
    assert not asked
    assert {verdict.outcome for verdict in assessment(result, "execute").verdicts} == {
        verdict_pb2.OUTCOME_PASS
    }
    assert listed.health == JudgeHealth.JUDGE_HEALTH_WRONG_VERSION
    assert listed.expected_version == ">=1.4,<2"


async def test_a_warning_keeps_the_verdicts_and_states_the_version() -> None:
    result, _ = await evaluated(Fake("critic"), expect_version="2.0.0", version_policy="warn")
    found = assessment(result)
    assert {verdict.outcome for verdict in found.verdicts} == {verdict_pb2.OUTCOME_PASS}
    assert found.provenance.parameters[UNEXPECTED_VERSION] == (
        "states the version '1.0.0'; expect_version is '2.0.0'"
    )
    assert found.provenance.version == "1.0.0"


async def test_an_expected_version_changes_nothing() -> None:
    result, listed = await evaluated(
        Fake("critic"), expect_version=">=1,<2", owner="team-a", labels={"tier": "external"}
    )
    found = assessment(result)
    assert {verdict.outcome for verdict in found.verdicts} == {verdict_pb2.OUTCOME_PASS}
    assert UNEXPECTED_VERSION not in found.provenance.parameters
    assert listed.health == JudgeHealth.JUDGE_HEALTH_SERVING
    assert (listed.owner, dict(listed.labels)) == ("team-a", {"tier": "external"})


async def test_a_judge_has_a_timeout_of_its_own() -> None:
    async def hang(request: Any) -> Any:
        await asyncio.sleep(60)

    result, _ = await evaluated(Fake("critic", hang), timeout_seconds=0.2)
    reasons = {verdict.abstain_reason for verdict in assessment(result).verdicts}
    assert reasons == {verdict_pb2.ABSTAIN_REASON_TIMED_OUT}


async def test_a_judge_has_a_limit_of_calls_of_its_own() -> None:
    running = most = 0

    async def count(request: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return all_pass("critic")

    async with gateway_with(Fake("critic", count), max_concurrent_calls=2) as client:
        await asyncio.gather(*(evaluate_result(client, scripts_request(1)) for _ in range(6)))
    assert most == 2


async def test_a_judge_has_certificates_and_a_token_of_its_own(tmp_path: Path) -> None:
    """Another authority than the gateway's, a certificate of the gateway, another name, a header."""
    authority = Authority(tmp_path / "partner")
    server_certificate = authority.issue("judge", names=["DNS:judge.partner.example"])
    client_certificate = authority.issue("dramaturg")
    token = tmp_path / "token"
    token.write_text("k-123\n")
    metadata: list[dict[str, Any]] = []

    class Noting(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            if details.method.endswith("/Judge"):
                metadata.append(dict(details.invocation_metadata))
            return await continuation(details)

    settings = ServerSettings.loopback(
        tls_certificate_file=server_certificate.certificate,
        tls_private_key_file=server_certificate.private_key,
        tls_client_ca_file=authority.certificate,
    )
    connection = {
        "tls_ca_file": authority.certificate,
        "tls_certificate_file": client_certificate.certificate,
        "tls_private_key_file": client_certificate.private_key,
        "tls_server_name": "judge.partner.example",
        "token_file": token,
        "token_header": "x-api-key",
    }
    async with (
        Server([Fake("critic").contract()], settings, interceptors=[Noting()]) as critic,
        serve_gateway(
            judges=[
                {"role": "critic", "name": "partner", "target": critic.target, "connection": connection},
                {"role": "execute", "name": "bare", "target": critic.target},
                *(
                    {"role": role, "name": "bare", "target": critic.target}
                    for role in ("commonsense", "synthesize")
                ),
            ]
        ) as gateway,
        DramaturgClient(gateway.target) as client,
    ):
        result = await evaluate_result(client, scripts_request(1))
        health = {one.name: one.health for one in await client.list_judges()}
    outcomes = {verdict.outcome for verdict in assessment(result).verdicts}
    assert outcomes == {verdict_pb2.OUTCOME_PASS}
    assert [one["x-api-key"] for one in metadata] == ["k-123"]
    assert "authorization" not in metadata[0]
    assert health == {
        "partner": JudgeHealth.JUDGE_HEALTH_SERVING,
        "bare": JudgeHealth.JUDGE_HEALTH_UNREACHABLE,
    }


async def test_a_file_of_a_connection_that_is_missing_is_named_with_its_judge(tmp_path: Path) -> None:
    entry = {
        "role": "critic",
        "name": "partner",
        "target": "localhost:1",
        "connection": {"tls_ca_file": tmp_path / "missing.pem"},
    }
    with pytest.raises(SettingsError, match=r"gateway\.judges: critic=partner: connection: .*missing\.pem"):
        async with serve_gateway(judges=[entry]):
            pass


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"expect_version": ">="}, ("expect_version",)),
        ({"version_policy": "ignore"}, ("version_policy",)),
        ({"connection": {"tls_certificate_file": "a.pem"}}, ("connection",)),
        ({"connection": {"token_header": "X Y"}}, ("connection", "token_header")),
        ({"timeout_seconds": 0}, ("timeout_seconds",)),
        ({"max_concurrent_calls": 0}, ("max_concurrent_calls",)),
    ],
)
def test_settings_that_cannot_be_used_are_named(fields: dict[str, Any], place: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError) as caught:
        JudgeEntry(role="critic", name="a", target="b:1", **fields)
    assert caught.value.errors()[0]["loc"][: len(place)] == place
