from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.service.settings import ChannelSettings, SettingsError
from dramaturg.testing import serve
from tests.support.certificates import Authority, Certificate
from tests.support.grpc_servers import silent, synthesize_request, synthesizer
from tests.support.ports import free_port


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def server_files(issued: Certificate, client_ca: Path | None = None) -> dict[str, Any]:
    return {
        "tls_certificate_file": issued.certificate,
        "tls_private_key_file": issued.private_key,
        "tls_client_ca_file": client_ca,
    }


def client_files(issuer: Authority, issued: Certificate | None = None) -> ChannelSettings:
    return ChannelSettings(
        tls_ca_file=issuer.certificate,
        tls_certificate_file=issued.certificate if issued else None,
        tls_private_key_file=issued.private_key if issued else None,
    )


async def ask(target: str, settings: ChannelSettings | None = None) -> SynthesizeResponse:
    async with open_channel(target, settings) as channel:
        return await SynthesizeServiceStub(channel).Synthesize(synthesize_request(), timeout=10)


def served_name(port: int, ca: Path) -> str:
    """The common name of the certificate that a new connection gets."""
    pem = ssl.get_server_certificate(("127.0.0.1", port), ca_certs=str(ca), timeout=10)
    decoded: Any = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]
    file = ca.parent / "served.pem"
    file.write_text(pem)
    return str(dict(pair for (pair,) in decoded(str(file))["subject"])["commonName"])


async def test_a_call_over_tls(issuer: Authority) -> None:
    async with serve(synthesizer(silent), **server_files(issuer.issue("server"))) as server:
        await ask(server.target, client_files(issuer))


async def test_a_client_that_does_not_trust_the_authority_is_not_connected(
    issuer: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    async with serve(synthesizer(silent), **server_files(issuer.issue("server"))) as server:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await ask(server.target, client_files(stranger))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_mutual_tls_wants_a_certificate_of_the_client(issuer: Authority, tmp_path: Path) -> None:
    seen: list[Any] = []

    async def note(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        seen.append(context.auth_context()["x509_common_name"])
        return SynthesizeResponse()

    files = server_files(issuer.issue("server"), client_ca=issuer.certificate)
    async with serve(synthesizer(note), **files) as server:
        await ask(server.target, client_files(issuer, issuer.issue("gateway")))
        assert seen == [[b"gateway"]]
        foreign = Authority(tmp_path, "foreign").issue("gateway")
        for settings in (client_files(issuer), client_files(issuer, foreign)):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await ask(server.target, settings)
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert len(seen) == 1


async def test_probes_bring_no_certificate(issuer: Authority) -> None:
    port = free_port()
    files = server_files(issuer.issue("server"), client_ca=issuer.certificate)
    async with (
        serve(synthesizer(silent), probe_port=port, **files) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        request = health_pb2.HealthCheckRequest()
        answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await ask(f"127.0.0.1:{port}")
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        await ask(server.target, client_files(issuer, issuer.issue("gateway")))


async def test_a_renewed_server_certificate_is_served_without_a_restart(issuer: Authority) -> None:
    issued = issuer.issue("before")
    async with serve(synthesizer(silent), **server_files(issued)) as server:
        assert await asyncio.to_thread(served_name, server.port, issuer.certificate) == "before"
        issued.replace(issuer.issue("after"))
        assert await asyncio.to_thread(served_name, server.port, issuer.certificate) == "after"
        await ask(server.target, client_files(issuer))


async def test_a_broken_renewal_leaves_the_old_certificate_in_service(issuer: Authority) -> None:
    issued = issuer.issue("kept")
    async with serve(synthesizer(silent), **server_files(issued)) as server:
        issued.certificate.unlink()
        assert await asyncio.to_thread(served_name, server.port, issuer.certificate) == "kept"


async def test_a_renewed_client_certificate_is_used_by_an_open_channel(issuer: Authority) -> None:
    seen: list[bytes] = []

    async def note(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        seen.extend(context.auth_context()["x509_common_name"])
        return SynthesizeResponse()

    files = server_files(issuer.issue("server"), client_ca=issuer.certificate)
    issued = issuer.issue("monday")
    async with (
        serve(synthesizer(note), **files) as server,
        open_channel(server.target, client_files(issuer, issued)) as channel,
    ):
        stub = SynthesizeServiceStub(channel)
        await stub.Synthesize(synthesize_request(), timeout=10)
        issued.replace(issuer.issue("tuesday"))
        await stub.Synthesize(synthesize_request(), timeout=10)
        issued.private_key.unlink()
        await stub.Synthesize(synthesize_request(), timeout=10)
    assert seen == [b"monday", b"tuesday", b"tuesday"]


async def test_calls_under_way_end_when_the_certificate_changes(issuer: Authority) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def wait(request: SynthesizeRequest, context: Any) -> SynthesizeResponse:
        if request.task.id == "slow":
            entered.set()
            await release.wait()
        return SynthesizeResponse()

    issued = issuer.issue("client")
    async with (
        serve(synthesizer(wait), **server_files(issuer.issue("server"), issuer.certificate)) as server,
        open_channel(server.target, client_files(issuer, issued)) as channel,
    ):
        stub = SynthesizeServiceStub(channel)
        slow = asyncio.ensure_future(stub.Synthesize(synthesize_request(id="slow"), timeout=10))
        await asyncio.wait_for(entered.wait(), 10)
        os.utime(issued.certificate, ns=(1, 1))
        await stub.Synthesize(synthesize_request(), timeout=10)
        release.set()
        await slow


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SettingsError, match=r"absent\.pem cannot be read"):
        open_channel("localhost:1", ChannelSettings(tls_ca_file=Path("/nowhere/absent.pem")))
