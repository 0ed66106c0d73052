"""How endpoints are reached: names, headers, query, proxies, certificates and redirects."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web

from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.service.errors import from_rpc_error
from tests.providers.scripted_server import Reply, message, scripted_server
from tests.support.certificates import Authority
from tests.support.generation import generation_service
from tests.support.http_servers import everything, serve_http


async def served(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[Any, Any]:
    """The request that a provider with these settings sends, and its body."""
    monkeypatch.setenv("THE_KEY", "key-123456")
    monkeypatch.setenv("PORTKEY_KEY", "pk-123456")
    async with scripted_server(lambda _: Reply(message("fine"))) as server:
        query = settings.pop("query", "")
        table = {"base_url": server.base_url + query, "default_model": "m", **settings}
        async with generation_service(providers={"p": table}) as service:
            assert (await service.generate(json_format=False)).text == "fine"
        return server.requests[0], server.bodies[0]


async def test_azure_has_its_own_header_and_keeps_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    request, _ = await served(
        monkeypatch, query="?api-version=2024-10-21", api_key_env="THE_KEY", api_key_header="api-key"
    )
    assert request.url.path == "/v1/chat/completions"
    assert dict(request.url.query) == {"api-version": "2024-10-21"}
    assert request.headers["api-key"] == "key-123456"
    assert "Authorization" not in request.headers


async def test_headers_query_and_body_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    request, body = await served(
        monkeypatch,
        extra_headers={"x-portkey-provider": "openai"},
        extra_headers_env={"x-portkey-api-key": "PORTKEY_KEY"},
        extra_query={"tier": "flex"},
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )
    assert request.headers["x-portkey-provider"] == "openai"
    assert request.headers["x-portkey-api-key"] == "pk-123456"
    assert dict(request.url.query) == {"tier": "flex"}
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


async def test_a_model_s_table_goes_before_the_provider_s(monkeypatch: pytest.MonkeyPatch) -> None:
    _, body = await served(
        monkeypatch,
        max_output_tokens=100,
        extra_body={"a": 1, "b": 1},
        models={"*": {"max_output_tokens": 50}, "m": {"extra_body": {"b": 2}, "reasoning_effort": "low"}},
    )
    assert (body["max_tokens"], body["a"], body["b"], body["reasoning_effort"]) == (100, 1, 2, "low")


@pytest.mark.parametrize(
    ("asked", "provider", "model"),
    [
        ("openai/gpt-oss-120b", "first", "openai/gpt-oss-120b"),
        ("second/meta-llama/llama-3", "second", "meta-llama/llama-3"),
        ("meta-llama/llama-3", "first", "meta-llama/llama-3"),
        ("plain", "first", "plain"),
    ],
)
async def test_only_a_configured_provider_is_a_prefix(asked: str, provider: str, model: str) -> None:
    async with scripted_server(lambda _: Reply(message("fine"))) as server:
        table = {"base_url": server.base_url}
        async with generation_service(providers={"first": table, "second": table}) as service:
            completion = await service.generate(model=asked, json_format=False)
    assert (completion.calls[0].provider, server.bodies[0]["model"]) == (provider, model)


async def test_the_environment_s_provider_has_no_vendor_s_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_server(lambda _: Reply(message("fine"))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        async with generation_service(providers={}) as service:
            completion = await service.generate(model="openai/gpt-oss-120b", json_format=False)
    assert (completion.calls[0].provider, server.bodies[0]["model"]) == ("environment", "openai/gpt-oss-120b")


async def proxied(monkeypatch: pytest.MonkeyPatch, no_proxy: str) -> list[str]:
    """The addresses that a proxy is asked for, with an endpoint at a name that only the proxy knows."""
    asked: list[str] = []

    async def proxy(request: web.Request) -> web.Response:
        asked.append(f"{request.url} {request.headers.get('Proxy-Authorization')}")
        return web.json_response(message("through the proxy"))

    once = {"transient_attempts": 1}
    table = {"base_url": "http://models.invalid/v1", "default_model": "m", "retries": once}
    async with serve_http(everything(proxy)) as address:
        monkeypatch.setenv("HTTP_PROXY", address.replace("//", "//user:word@"))
        monkeypatch.setenv("NO_PROXY", no_proxy)
        with suppress(grpc.aio.AioRpcError):
            async with generation_service(providers={"p": table}) as service:
                await service.generate(json_format=False)
    return asked


async def test_a_proxy_is_used_where_the_environment_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await proxied(monkeypatch, "") == ["http://models.invalid/v1/chat/completions Basic dXNlcjp3b3Jk"]


async def test_no_proxy_is_used_for_the_hosts_of_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await proxied(monkeypatch, "models.invalid") == []


async def test_a_redirect_on_the_same_host_is_followed() -> None:
    def moved(_: Any) -> Reply:
        if len(server.bodies) == 1:
            return Reply(None, 308, {"Location": "/v1/chat/completions?moved=1"})
        return Reply(message("fine"))

    async with (
        scripted_server(moved) as server,
        generation_service(providers={"p": {"base_url": server.base_url, "default_model": "m"}}) as service,
    ):
        assert (await service.generate(json_format=False)).text == "fine"
    assert dict(server.requests[1].url.query) == {"moved": "1"}


async def test_certificates_of_the_server_and_the_client_are_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    served_with, shown = authority.issue("server"), authority.issue("client")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(served_with.certificate, served_with.private_key)

    async def answer(request: web.Request) -> web.Response:
        del request
        return web.json_response(message("fine"))

    async with serve_http(everything(answer), tls=context) as address:
        named = address.replace("127.0.0.1", "localhost")
        table = {"base_url": f"{named}/v1", "default_model": "m"}
        async with generation_service(providers={"p": table}) as service:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await service.generate(json_format=False)
        assert from_rpc_error(raised.value).reason == reasons.ERROR_REASON_PROVIDER_ADDRESS_INVALID
        trusting = {
            **table,
            "ca_file": str(authority.certificate),
            "client_certificate": str(shown.certificate),
            "client_key": str(shown.private_key),
        }
        async with generation_service(providers={"p": trusting}) as service:
            assert (await service.generate(json_format=False)).text == "fine"
