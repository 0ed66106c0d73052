"""The web console, hostile: strangers and tenants cost it little time, and no request breaks it."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from gateway.console.sessions import SealedSessions, Sessions, open_sessions
from tests.hostile.test_http import RAW, raw
from tests.hostile.values import TEXTS
from tests.support.auth import holder
from tests.support.console import Consoled, serve_console

VISITOR = holder("research", "evaluator")
FORM = "application/x-www-form-urlencoded"
SIGN_IN, EVALUATE, LABELS = "/console/sign-in", "/console/evaluate/script", "/console/labels"
ADDRESSES = ("http://[", "http://[::1", "http://a:b:c", "//", "null", "a" * 4000, "http://\\", "[", "::", "%")


@pytest.fixture
async def console(tmp_path: Path) -> AsyncIterator[Consoled]:
    async with serve_console(tmp_path, (), (VISITOR,)) as served:
        yield served


@pytest.fixture
async def open_console(tmp_path: Path) -> AsyncIterator[Consoled]:
    """One without authentication."""
    async with serve_console(tmp_path) as served:
        yield served


def session_of(console: Consoled) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(console.url, cookie_jar=aiohttp.CookieJar(unsafe=True))


async def status_of(
    session: aiohttp.ClientSession, address: str, data: bytes, kind: str = FORM, **headers: str
) -> int:
    origin = str(session._base_url).rstrip("/")
    named = {"Content-Type": kind, "Origin": origin, **headers}
    async with session.post(address, data=data, headers=named, allow_redirects=False) as response:
        await response.read()
        return response.status


async def test_a_stranger_sends_small_forms_of_few_fields_alone(console: Consoled) -> None:
    async with session_of(console) as stranger:
        assert await status_of(stranger, SIGN_IN, b"token=" + b"x" * (32 << 10)) == 413
        assert await status_of(stranger, SIGN_IN, b"&".join([b"a="] * 101)) == 413
        multipart = b"--a\r\nContent-Disposition: form-data; name=b\r\n\r\nc\r\n" * 500 + b"--a--\r\n"
        for kind in ("multipart/form-data; boundary=a", "text/plain", "application/json", ""):
            assert await status_of(stranger, SIGN_IN, multipart, kind) == 415
        assert await status_of(stranger, SIGN_IN, b"token=%ff%00&next=\xff") == 401


async def test_a_visitor_sends_a_form_of_a_megabyte_at_most(console: Consoled) -> None:
    async with session_of(console) as visitor:
        assert await status_of(visitor, SIGN_IN, f"token={VISITOR.token}".encode()) == 303
        assert await status_of(visitor, EVALUATE, b"script=" + b"x" * (1 << 20)) == 413
        assert await status_of(visitor, EVALUATE, b"a=&" * 300_000) == 413
        # Escapes of a megabyte are read; the script is longer than the contract allows.
        assert await status_of(visitor, EVALUATE, b"goal=a&script=" + b"%41" * 340_000) == 400


@pytest.mark.parametrize("address", ADDRESSES)
async def test_headers_that_are_no_addresses_are_refused(open_console: Consoled, address: str) -> None:
    async with session_of(open_console) as stranger:
        assert await status_of(stranger, SIGN_IN, b"token=a", Origin=address) == 403
    request = f"GET /console/ HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    answer = await raw(open_console.url, request.encode())
    assert answer.split()[1] in (b"421", b"400"), answer[:100]


@pytest.mark.parametrize("label", TEXTS)
async def test_no_text_breaks_a_form(console: Consoled, label: str) -> None:
    form = aiohttp.FormData(dict.fromkeys(("goal", "constraints", "script", "model"), TEXTS[label]))
    sets = aiohttp.FormData(dict.fromkeys(("run", "task", "size", "seed", "name"), TEXTS[label]))
    async with session_of(console) as visitor:
        assert await status_of(visitor, SIGN_IN, f"token={VISITOR.token}".encode()) == 303
        for address, fields in ((EVALUATE, form), (LABELS, sets)):
            payload = fields()
            assert isinstance(payload, aiohttp.BytesPayload)
            assert 300 <= await status_of(visitor, address, payload._value) < 500, address


async def test_what_is_no_request_is_refused(console: Consoled) -> None:
    for label, data in RAW.items():
        answer = await raw(console.url, data.replace(b"POST / ", b"POST /console/sign-in "))
        assert not answer or answer.split()[1].startswith(b"4"), f"{label}: {answer[:100]!r}"


async def test_requests_in_progress_have_a_maximum(tmp_path: Path) -> None:
    async with serve_console(tmp_path, (), (VISITOR,), max_concurrent_calls=2) as console:
        url = urlsplit(console.url)
        unfinished = (
            f"POST {SIGN_IN} HTTP/1.1\r\nHost: {url.netloc}\r\nOrigin: {console.url}\r\n"
            f"Content-Type: {FORM}\r\nContent-Length: 100\r\n\r\ntoken="
        )
        connections = [await asyncio.open_connection(url.hostname, url.port) for _ in range(2)]
        for _, writer in connections:
            writer.write(unfinished.encode())
        async with session_of(console) as visitor:
            async with asyncio.timeout(20):
                while await status_of(visitor, SIGN_IN, b"token=a") != 503:
                    pass
            for _, writer in connections:
                writer.close()
            async with asyncio.timeout(20):
                while await status_of(visitor, SIGN_IN, b"token=a") != 401:
                    pass


def test_a_visitor_has_one_session() -> None:
    sessions = Sessions()
    other = sessions.open("other", "other")
    own = [sessions.open(f"token {number}", "own") for number in range(20_000)]
    assert sessions.token(other) == "other"
    assert [one for one in own if sessions.token(one)] == own[-1:]
    for one in (other, own[-1]):
        sessions.close(one)
    assert not sessions._sessions
    assert not sessions._ids


def test_sessions_of_ten_thousand_visitors_have_a_bound_in_all(tmp_path: Path) -> None:
    sessions = Sessions()
    opened = [sessions.open("a token", f"visitor {number}") for number in range(10_020)]
    assert sum(map(bool, map(sessions.token, opened))) == 10_000
    assert len(sessions._ids) == 10_000
    keys = tmp_path / "keys"
    keys.write_bytes(base64.b64encode(secrets.token_bytes(32)))
    sealed = open_sessions(keys)
    assert all(sealed.token(sealed.open("a token", "visitor")) == "a token" for _ in range(1000))
    for number in range(10_020):
        sealed.close(sealed.open("a token", f"visitor {number}"))
    assert isinstance(sealed, SealedSessions)
    assert not sealed._sessions
    assert not sealed._ids
    assert len(sealed._valid_from) == 10_000
