"""Servers that check their callers, over real connections."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.service.auth.caller import ANONYMOUS, TENANT_METADATA, Caller, current, is_loopback
from dramaturg.service.auth.settings import AuthSettings, IdentityGrant
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.service.server import Server
from dramaturg.service.settings import ChannelSettings, ServerSettings, SettingsError
from dramaturg.testing import serve
from tests.support.auth import channel_of, holder, token_settings, write_tokens
from tests.support.certificates import Authority
from tests.support.grpc_servers import (
    ARITIES,
    METHODS,
    arities,
    call_arity,
    relay,
    silent,
    synthesize_request,
    synthesizer,
)

GATEWAY, EVALUATOR = holder("", "service"), holder("team-a", "evaluator")


@asynccontextmanager
async def guarded(folder: Path, *contracts: Contract, **settings: Any) -> AsyncIterator[Server]:
    """A server that knows a service and an evaluator."""
    auth = token_settings(folder, GATEWAY, EVALUATOR, **settings)
    async with Server(contracts, ServerSettings.loopback(drain_grace_seconds=0.2), auth) as server:
        yield server


async def refused(call: Any) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return from_rpc_error(raised.value)


@pytest.mark.parametrize("method", [name for name, _, _ in METHODS])
async def test_calls_of_every_arity_are_checked(tmp_path: Path, method: str) -> None:
    seen: list[Caller] = []

    async def work() -> None:
        seen.append(current())

    contract = replace(arities(work), permission="evaluate")
    async with guarded(tmp_path, contract) as server:
        async with channel_of(server.target, tmp_path, None) as channel:
            error = await refused(call_arity(channel, method, synthesize_request(goal=" ")))
            assert error.code is grpc.StatusCode.UNAUTHENTICATED, "the message was looked at first"
        async with channel_of(server.target, tmp_path, GATEWAY) as channel:
            error = await refused(call_arity(channel, method, synthesize_request()))
            assert error.metadata == {"method": f"/{ARITIES}/{method}"}
        assert not seen
        async with channel_of(server.target, tmp_path, EVALUATOR) as channel:
            await call_arity(channel, method, synthesize_request())
    assert [(caller.tenant, caller.roles) for caller in seen] == [("team-a", frozenset({"evaluator"}))]


async def test_a_full_server_tells_strangers_nothing_of_its_load(tmp_path: Path) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def wait(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        begun.set()
        await release.wait()
        return SynthesizeResponse()

    auth = token_settings(tmp_path, GATEWAY)
    async with (
        Server([synthesizer(wait)], ServerSettings.loopback(max_concurrent_calls=1), auth) as server,
        channel_of(server.target, tmp_path, GATEWAY) as known,
        channel_of(server.target, tmp_path, None) as unknown,
    ):
        under_way = SynthesizeServiceStub(known).Synthesize(synthesize_request(), timeout=20)
        await begun.wait()
        error = await refused(SynthesizeServiceStub(unknown).Synthesize(synthesize_request(), timeout=20))
        assert error.code is grpc.StatusCode.UNAUTHENTICATED
        release.set()
        await under_way


async def test_probes_need_no_credentials_and_reflection_does(tmp_path: Path) -> None:
    async def services(channel: grpc.aio.Channel) -> list[str]:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        responses = stub.ServerReflectionInfo(iter([request]), timeout=10)
        return [one.name async for answer in responses for one in answer.list_services_response.service]

    async with guarded(tmp_path, synthesizer(silent)) as server:
        async with channel_of(server.target, tmp_path, None) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            error = await refused(services(channel))
            assert error.code is grpc.StatusCode.UNAUTHENTICATED
        async with channel_of(server.target, tmp_path, EVALUATOR) as channel:
            assert "dramaturg.api.agents.v1.SynthesizeService" in await services(channel)
    async with (
        guarded(tmp_path, synthesizer(silent), reflection_permission="open") as server,
        channel_of(server.target, tmp_path, None) as channel,
    ):
        assert await services(channel)


async def test_strangers_do_not_learn_which_methods_are_served(tmp_path: Path) -> None:
    async def ask(channel: grpc.aio.Channel) -> grpc.StatusCode:
        nothing: Any = channel.unary_unary("/dramaturg.api.agents.v1.SynthesizeService/Praise")
        return (await refused(nothing(b"", timeout=10))).code

    async with guarded(tmp_path, synthesizer(silent)) as server:
        async with channel_of(server.target, tmp_path, None) as channel:
            assert await ask(channel) is grpc.StatusCode.UNAUTHENTICATED
        async with channel_of(server.target, tmp_path, GATEWAY) as channel:
            assert await ask(channel) is grpc.StatusCode.UNIMPLEMENTED


async def test_a_method_without_a_rule_keeps_the_server_from_starting(tmp_path: Path) -> None:
    async def nothing() -> None:
        pass

    with pytest.raises(SettingsError, match=f"/{ARITIES}/UnaryUnary needs a permission"):
        async with guarded(tmp_path, arities(nothing)):
            pass
    async with Server([arities(nothing)], ServerSettings.loopback()):
        pass


@pytest.mark.parametrize(
    "authorization",
    [
        ["Basic dXNlcjpwYXNz"],
        ["Bearer"],
        ["Bearer "],
        [f"Bearer {GATEWAY.token} "],
        [f"Bearer  {GATEWAY.token}"],
        [f"Bearer {GATEWAY.token}", f"Bearer {GATEWAY.token}"],
        [GATEWAY.token],
        ["Bearer a.b.c"],
    ],
)
async def test_authorization_is_one_bearer_token(tmp_path: Path, authorization: list[str]) -> None:
    async with guarded(tmp_path, synthesizer(silent)) as server, open_channel(server.target) as channel:
        metadata = [("authorization", value) for value in authorization]
        call = SynthesizeServiceStub(channel).Synthesize(synthesize_request(), metadata=metadata, timeout=10)
        assert (await refused(call)).code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_token_that_is_taken_out_is_refused_on_an_open_connection(tmp_path: Path) -> None:
    async with (
        guarded(tmp_path, synthesizer(silent)) as server,
        channel_of(server.target, tmp_path, GATEWAY) as channel,
    ):
        stub = SynthesizeServiceStub(channel)
        await stub.Synthesize(synthesize_request(), timeout=10)
        os.utime(write_tokens(tmp_path, EVALUATOR), ns=(0, 1))
        error = await refused(stub.Synthesize(synthesize_request(), timeout=10))
        assert error.code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_services_token_is_renewed_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "own.token"
    file.write_text("outdated")
    async with (
        guarded(tmp_path, synthesizer(silent)) as server,
        open_channel(server.target, ChannelSettings(token_file=file)) as channel,
    ):
        stub = SynthesizeServiceStub(channel)
        await refused(stub.Synthesize(synthesize_request(), timeout=10))
        file.write_text(GATEWAY.token)
        os.utime(file, ns=(0, 1))
        await stub.Synthesize(synthesize_request(), timeout=10)


async def test_the_tenant_goes_along_from_service_to_service(tmp_path: Path) -> None:
    seen: list[Caller] = []

    async def note(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        seen.append(current())
        return SynthesizeResponse()

    file = tmp_path / "own.token"
    file.write_text(GATEWAY.token)
    own = ChannelSettings(token_file=file)
    async with (
        guarded(tmp_path, synthesizer(note)) as last,
        guarded(tmp_path, synthesizer(relay(last.target, own))) as middle,
    ):
        first = replace(synthesizer(relay(middle.target, own)), permission="evaluate")
        async with (
            guarded(tmp_path, first) as gateway,
            channel_of(gateway.target, tmp_path, EVALUATOR) as channel,
        ):
            metadata = [(TENANT_METADATA, "team-b")]  # which an evaluator cannot choose
            await SynthesizeServiceStub(channel).Synthesize(
                synthesize_request(), metadata=metadata, timeout=10
            )
    assert [(caller.principal, caller.tenant) for caller in seen] == [("service@platform", "team-a")]


async def test_the_tenant_is_passed_on_where_services_do_not_authenticate_callers(tmp_path: Path) -> None:
    """As in one process, or behind policies of the network: the gateway alone asks who calls."""
    seen: list[Caller] = []

    async def note(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        seen.append(current())
        return SynthesizeResponse()

    async with serve(synthesizer(note)) as last, serve(synthesizer(relay(last.target))) as middle:
        first = replace(synthesizer(relay(middle.target)), permission="evaluate")
        async with (
            guarded(tmp_path, first) as gateway,
            channel_of(gateway.target, tmp_path, EVALUATOR) as channel,
        ):
            await SynthesizeServiceStub(channel).Synthesize(synthesize_request(), timeout=10)
        async with open_channel(middle.target) as channel:
            await SynthesizeServiceStub(channel).Synthesize(synthesize_request(), timeout=10)
    assert seen == [Caller("", "team-a", frozenset()), ANONYMOUS]


async def test_a_gateway_that_does_not_authenticate_callers_accepts_no_tenant() -> None:
    seen: list[Caller] = []

    async def note(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        seen.append(current())
        return SynthesizeResponse()

    async with (
        serve(replace(synthesizer(note), permission="evaluate")) as gateway,
        open_channel(gateway.target) as channel,
    ):
        metadata = [(TENANT_METADATA, "team-a")]
        await SynthesizeServiceStub(channel).Synthesize(synthesize_request(), metadata=metadata, timeout=10)
    assert seen == [ANONYMOUS]


@pytest.mark.parametrize("told_apart", [True, False])
@pytest.mark.parametrize("tenants", [["Team A"], ["a/b"], ["team-a", "team-b"], [""]])
async def test_a_service_calls_for_one_tenant_with_a_proper_name(
    tmp_path: Path, tenants: list[str], told_apart: bool
) -> None:
    server = guarded(tmp_path, synthesizer(silent)) if told_apart else serve(synthesizer(silent))
    async with server as made, channel_of(made.target, tmp_path, GATEWAY) as channel:
        metadata = [(TENANT_METADATA, tenant) for tenant in tenants]
        call = SynthesizeServiceStub(channel).Synthesize(synthesize_request(), metadata=metadata, timeout=10)
        assert (await refused(call)).code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_certificate_identifies_the_caller(tmp_path: Path) -> None:
    issuer = Authority(tmp_path / "certificates")
    seen: list[Caller] = []

    async def note(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        seen.append(current())
        return SynthesizeResponse()

    served = issuer.issue("server")
    settings = ServerSettings.loopback(
        tls_certificate_file=served.certificate,
        tls_private_key_file=served.private_key,
        tls_client_ca_file=issuer.certificate,
        drain_grace_seconds=0.2,
    )
    grant = IdentityGrant(pattern="spiffe://example.org/ns/dramaturg/sa/*", roles=("service",))
    auth = token_settings(tmp_path, EVALUATOR, identities=(grant,))

    def client(name: str, uri: str, token: Path | None = None) -> ChannelSettings:
        issued = issuer.issue(name, uri=uri)
        return ChannelSettings(
            tls_ca_file=issuer.certificate,
            tls_certificate_file=issued.certificate,
            tls_private_key_file=issued.private_key,
            token_file=token,
        )

    async def ask(settings: ChannelSettings) -> None:
        async with open_channel(server.target, settings) as channel:
            await SynthesizeServiceStub(channel).Synthesize(synthesize_request(), timeout=10)

    wrong = tmp_path / "wrong.token"
    wrong.write_text("wrong")
    spiffe_id = "spiffe://example.org/ns/dramaturg/sa/gateway"
    async with Server([synthesizer(note)], settings, auth) as server:
        await ask(client("gateway", spiffe_id))
        for stranger in (
            client("stranger", "spiffe://elsewhere.org/ns/dramaturg/sa/gateway"),
            client("nameless", ""),
            client("with-a-wrong-token", spiffe_id, wrong),
        ):
            assert (await refused(ask(stranger))).code is grpc.StatusCode.UNAUTHENTICATED
    assert [(caller.principal, caller.roles) for caller in seen] == [(spiffe_id, frozenset({"service"}))]


@pytest.mark.parametrize("target", ["critic.example:50051", "dns:///critic.example:50051", "10.0.0.7:50051"])
def test_a_token_does_not_pass_a_network_in_plain_text(tmp_path: Path, target: str) -> None:
    file = tmp_path / "own.token"
    file.write_text("secret")
    with pytest.raises(SettingsError, match="plain text") as raised:
        open_channel(target, ChannelSettings(token_file=file))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("target", "here"),
    [
        ("localhost:1", True),
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("dns:///localhost:1", True),
        ("ipv4:127.0.0.1:1,127.0.0.1:2", True),
        ("unix:/run/socket", True),
        ("ipv4:127.0.0.1:1,10.0.0.1:2", False),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("localhost.example:1", False),
        ("127.0.0.1.example:1", False),
        ("dns://10.0.0.1/localhost:1", False),
    ],
)
def test_loopback_targets(target: str, here: bool) -> None:
    assert is_loopback(target) is here


@pytest.mark.parametrize("content", ["", "\n", "two words", "two\nlines", "wört"])
def test_a_token_is_one_word(tmp_path: Path, content: str) -> None:
    file = tmp_path / "own.token"
    file.write_text(content)
    with pytest.raises(SettingsError, match="holds no token"):
        open_channel("localhost:1", ChannelSettings(token_file=file))


@pytest.mark.parametrize(
    ("host", "known", "warned"), [("127.0.0.1", False, 0), ("0.0.0.0", False, 1), ("0.0.0.0", True, 0)]
)
async def test_a_server_without_authentication_logs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str, known: bool, warned: int
) -> None:
    auth = token_settings(tmp_path, GATEWAY) if known else AuthSettings()
    with caplog.at_level(logging.WARNING):
        async with Server([synthesizer(silent)], ServerSettings.loopback(host=host), auth):
            pass
    assert caplog.text.count("callers are not authenticated") == warned
