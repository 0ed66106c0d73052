"""Sessions that several gateways share, and what ends them."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from cryptography.fernet import Fernet
from yarl import URL

from dramaturg.service.settings import SettingsError
from dramaturg.testing import in_thread
from gateway.console.sessions import COOKIE, LIFETIME_SECONDS, MAX_SEALED_BYTES, Sessions, open_sessions
from tests.gateway.console.conftest import EVALUATOR, JUDGES, STRANGER
from tests.support.console import Consoled, serve_console


def new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def write(file: Path, keys: Sequence[str]) -> Path:
    file.write_text("".join(f"{key}\n" for key in keys), encoding="ascii")
    return file


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write(tmp_path / "keys", [new_key()])


def test_every_gateway_with_the_keys_knows_a_session(keys: Path) -> None:
    one, other = open_sessions(keys), open_sessions(keys)
    session = one.open("a token", "a visitor")
    assert "a token" not in session
    assert other.token(session) == one.token(session) == "a token"
    assert one.open("a token", "a visitor") != session


def test_the_next_session_of_a_visitor_ends_its_last_one(keys: Path) -> None:
    one, other = open_sessions(keys), open_sessions(keys)
    for sessions in (Sessions(), one):
        first, stranger = sessions.open("a token", "a visitor"), sessions.open("b token", "b visitor")
        second = sessions.open("a token", "a visitor")
        assert (sessions.token(first), sessions.token(second)) == (None, "a token")
        assert sessions.token(stranger) == "b token"
    # Another gateway knows of it once the later session arrives there.
    assert other.token(first) == "a token"
    assert other.token(second) == "a token"
    assert other.token(first) is None
    assert other.token(stranger) == "b token"


def test_a_copy_of_a_session_ends_with_a_sign_out_of_this_gateway(keys: Path) -> None:
    sessions = open_sessions(keys)
    session = sessions.open("a token", "a visitor")
    sessions.close(session)
    assert sessions.token(session) is None
    renewed = sessions.open("a token", "a visitor")
    assert sessions.token(renewed) == "a token"


def test_a_visitor_whose_token_grows_has_one_session(keys: Path) -> None:
    sessions = open_sessions(keys)
    for tokens in (("short", "a" * MAX_SEALED_BYTES), ("a" * MAX_SEALED_BYTES, "short")):
        first, second = (sessions.open(token, "a visitor") for token in tokens)
        assert (sessions.token(first), sessions.token(second)) == (None, tokens[1])


def test_cookies_of_another_version_are_no_sessions(keys: Path) -> None:
    sessions = open_sessions(keys)
    cipher = Fernet(base64.urlsafe_b64encode(base64.b64decode(keys.read_text())))
    for content in (b"a token", b"12345", b"[1, 2]", b"{}", b"\xff"):
        assert sessions.token(cipher.encrypt(content).decode()) is None


def test_a_gateway_with_other_keys_does_not_know_it(keys: Path, tmp_path: Path) -> None:
    session = open_sessions(keys).open("a token", "a visitor")
    assert open_sessions(write(tmp_path / "others", [new_key()])).token(session) is None
    assert Sessions().token(session) is None


def test_a_session_that_was_changed_does_not_exist(keys: Path) -> None:
    sessions = open_sessions(keys)
    session = sessions.open("a token", "a visitor")
    for place in range(0, len(session) - 1, 7):
        letter = "A" if session[place] != "A" else "B"
        assert sessions.token(session[:place] + letter + session[place + 1 :]) is None
    for value in ("", "a", session[:-3], session[4:], "\udcff", "ä", "a" * 100_000):
        assert sessions.token(value) is None


def test_a_session_ends_after_its_lifetime(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = open_sessions(keys)
    session, begun = sessions.open("a token", "a visitor"), time.time()
    monkeypatch.setattr("time.time", lambda: begun + LIFETIME_SECONDS - 2)
    assert sessions.token(session) == "a token"
    monkeypatch.setattr("time.time", lambda: begun + LIFETIME_SECONDS + 2)
    assert sessions.token(session) is None


def test_sessions_end_with_their_key_and_not_before(keys: Path) -> None:
    sessions = open_sessions(keys)
    (old,) = keys.read_text().split()
    session, new = sessions.open("a token", "a visitor"), new_key()
    write(keys, [new, old])
    assert sessions.token(session) == "a token"
    renewed = sessions.open("a token", "a visitor")
    write(keys, [new, new])
    assert sessions.token(session) is None
    assert sessions.token(renewed) == "a token"
    write(keys, ["none", "of", "these"])
    assert sessions.token(renewed) == "a token", "the last usable keys stay"


def test_a_token_that_fits_in_no_cookie_stays_in_memory(keys: Path) -> None:
    one, other = open_sessions(keys), open_sessions(keys)
    token = "a" * MAX_SEALED_BYTES
    session = one.open(token, "a visitor")
    assert len(session) < 100
    assert one.token(session) == token
    assert other.token(session) is None
    one.close(session)
    assert one.token(session) is None


@pytest.mark.parametrize("text", ["", "short", "*" * 44, base64.b64encode(b"a" * 31).decode(), "\xff"])
def test_wrong_keys_are_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError) as refused:
        open_sessions(file)
    assert str(file) in str(refused.value)
    assert len(text) < 2 or text not in str(refused.value)


def test_keys_may_be_of_the_alphabet_for_addresses(tmp_path: Path) -> None:
    file = write(tmp_path / "keys", [base64.urlsafe_b64encode(b"\xfb\xff" * 16).decode()])
    sessions = open_sessions(file)
    assert sessions.token(sessions.open("a token", "a visitor")) == "a token"


def test_without_a_file_sessions_are_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert type(open_sessions(None)) is Sessions
    assert not caplog.records
    assert type(open_sessions(tmp_path / "absent")) is Sessions
    assert "does not exist" in caplog.text


async def test_visitors_go_from_gateway_to_gateway(keys: Path, tmp_path: Path) -> None:
    """Each visitor with the permissions of its token; who signs out is out everywhere in its browser."""
    holders = (EVALUATOR, STRANGER)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with (
        in_thread(serve_console(tmp_path / "one", JUDGES, holders, session_keys_file=keys)) as one,
        # It no longer knows the token of STRANGER.
        in_thread(serve_console(tmp_path / "other", JUDGES, (EVALUATOR,), session_keys_file=keys)) as other,
    ):
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            assert await sign_in(browser, one, EVALUATOR.token) == 303
            assert await status(browser, other) == 200
            foreign = {"Origin": one.url}
            async with browser.post(f"{other.url}/console/sign-out", headers=foreign) as refused:
                assert refused.status == 403
            own = {"Origin": other.url}
            signing_out = browser.post(f"{other.url}/console/sign-out", headers=own, allow_redirects=False)
            async with signing_out as left:
                assert left.status == 303
            assert await status(browser, one) == 303
            assert await sign_in(browser, one, STRANGER.token) == 303
            assert await status(browser, one) == 200
            assert await status(browser, other) == 303


async def sign_in(browser: aiohttp.ClientSession, console: Consoled, token: str) -> int:
    address, origin = f"{console.url}/console/sign-in", {"Origin": console.url}
    async with browser.post(address, data={"token": token}, headers=origin, allow_redirects=False) as answer:
        sealed = answer.cookies[COOKIE].value
    assert token not in sealed
    # Cookies are those of a host, for all of its ports.
    assert urlsplit(console.url).hostname == "127.0.0.1"
    assert browser.cookie_jar.filter_cookies(URL(f"{console.url}/console/"))[COOKIE].value == sealed
    return answer.status


async def status(browser: aiohttp.ClientSession, console: Consoled) -> int:
    async with browser.get(f"{console.url}/console/", allow_redirects=False) as page:
        return page.status
