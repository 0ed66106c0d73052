"""Bodies posted to an endpoint, and what of its response is read."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from services.generation.calls import Call, FailureKind, Message, ProviderError, Role, Until
from services.generation.providers import transport
from services.generation.providers.openai_compatible import OpenAICompatibleProvider
from services.generation.providers.transport import Access, Transport
from tests.support.http_servers import everything, serve_http

CALL = Call("m", (Message(Role.USER, "Say hello."),))


async def test_connections_are_kept_and_cookies_are_not() -> None:
    met: list[tuple[object, bool]] = []

    async def answer(request: web.Request) -> web.Response:
        met.append((request.transport, "Cookie" in request.headers))
        response = web.Response(body=await request.read(), status=418)
        response.set_cookie("crumb", "1")
        return response

    async with serve_http(everything(answer)) as address:
        sender = Transport(address, Access({"X-Name": "x"}), max_connections=2)
        responses = [await sender.post("/here", b"{}") for _ in range(2)]
        await sender.close()
    assert [(response.status, response.content) for response in responses] == [(418, b"{}")] * 2
    assert met[0][0] is met[1][0]
    assert not any(cookie for _, cookie in met)


async def test_an_endpoint_without_a_key_is_shown_none() -> None:
    shown: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        shown.append(request.headers.get("Authorization"))
        return web.json_response({"choices": [{"message": {"content": "Hello."}}]})

    async with serve_http(everything(answer)) as address:
        for headers in ({}, {"Authorization": "Bearer secret"}):
            provider = OpenAICompatibleProvider("p", address, Access(headers))
            assert (await provider.complete(CALL, Until(None))).text == "Hello."
            await provider.close()
    assert shown == [None, "Bearer secret"]


async def test_a_response_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_RESPONSE_BYTES", 2**20)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 2**16)

    async with serve_http(everything(answer)) as address:
        provider = OpenAICompatibleProvider("p", address)
        with pytest.raises(ProviderError, match="longer than 1 MiB") as raised:
            await provider.complete(CALL, Until(None))
        await provider.close()
    assert raised.value.kind is FailureKind.TRANSIENT
    assert not raised.value.settled


async def test_a_response_in_parts_is_read_whole() -> None:
    parts = [b"", b"one", b"two" * 50_000, b"three"]

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for part in parts if await request.text() else []:
            await response.write(part)
            await asyncio.sleep(0.01)
        return response

    async with serve_http(everything(answer)) as address:
        sender = Transport(address, max_connections=1)
        contents = [(await sender.post("/here", body)).content for body in (b"{}", b"")]
        await sender.close()
    assert contents == [b"".join(parts), b""]


async def test_a_response_that_breaks_off_fails_and_its_connection_is_not_used_again() -> None:
    met: list[asyncio.BaseTransport | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        met.append(request.transport)
        response = web.StreamResponse(headers={"Content-Length": "10"})
        await response.prepare(request)
        await response.write(b"half" if len(met) == 1 else b"0123456789")
        if len(met) == 1 and request.transport is not None:
            request.transport.close()
        return response

    async with serve_http(everything(answer)) as address:
        sender = Transport(address, max_connections=1)
        with pytest.raises(aiohttp.ClientPayloadError):
            await sender.post("/here", b"{}")
        assert (await sender.post("/here", b"{}")).content == b"0123456789"
        await sender.close()
    assert met[0] is not met[1]


async def test_where_nobody_listens_nothing_was_sent() -> None:
    sender = Transport("http://127.0.0.1:1/", max_connections=1)
    with pytest.raises(aiohttp.ClientConnectorError):
        await sender.post("/here", b"{}")
    await sender.close()
