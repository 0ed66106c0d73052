"""Texts without secrets."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.service.logs import redact, secrets_of, without_credentials
from tests.support.growth import faster_than_linear

SECRET = "s3cr3t-0123456789.~+/="
WEB_TOKEN = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"authorization : bearer   {SECRET}",
        f"Authorization Bearer {SECRET}",
        f"Proxy-Authorization: Basic {SECRET}",
        f"Authorization: {SECRET}",
        f"Authorization:\r\n Bearer\r\n\t{SECRET}",
        repr(f"GET / HTTP/1.1\nAuthorization: Bearer\n {SECRET}\nHost: a\n".encode()),
        repr(repr(f"GET / HTTP/1.1\r\nAuthorization:\r\n {SECRET}\r\n\r\n".encode())),
        f"(('authorization', 'Bearer {SECRET}'), ('x-request-id', 'r'))",
        f"_Metadatum(key='authorization', value='Bearer {SECRET}')",
        f"{{b'authorization': b'Bearer {SECRET}'}}",
        f"Cookie: a=b; dramaturg_session={SECRET}",
        f"('x-api-key', '{SECRET}')",
        f"x-judge-token: {SECRET}",
        f"POST /console/sign-in token={SECRET}&next=/",
        f'{{"token": "{SECRET}"}}',
        f'{{\\"password\\": \\"{SECRET}\\"}}',
        f"Settings(api_key='{SECRET}')",
        f"postgresql://dramaturg:{SECRET.replace('/', '')}@db/runs",
        f"bearer={SECRET}",
    ],
)
def test_credentials_are_removed_in_every_form_of_a_header(text: str) -> None:
    shown = without_credentials(text)
    assert SECRET not in shown
    assert SECRET.replace("/", "") not in shown
    assert "[key]" in shown
    assert "s3cr3t" not in without_credentials(f"it says {text}")


def test_a_web_token_is_removed_wherever_it_stands() -> None:
    assert without_credentials(f"the caller says {WEB_TOKEN}.") == "the caller says [key]."


def test_other_lines_stay() -> None:
    text = f"Host: a\nAuthorization: Bearer {SECRET}\nX-Request-Id: r-1"
    assert without_credentials(text) == "Host: a\nAuthorization: [key]\nX-Request-Id: r-1"


@pytest.mark.parametrize(
    "text",
    [
        "a bearer token or a client certificate is needed",
        "the call used 15 prompt tokens: 12 were cached",
        "secrets/token holds no token: one line of ASCII characters without blanks",
        "the key of the ledger is the request's hash",
        "http://127.0.0.1:50080/console/ and postgresql://db:5432/runs",
        "3 tokens a second, max_tokens=512, token_file=/run/token",
    ],
)
def test_words_about_credentials_stay(text: str) -> None:
    assert without_credentials(text) == text


@given(st.text(), st.text(alphabet="abcXYZ019-_.~+/", min_size=8, max_size=40))
def test_no_text_before_a_header_hides_it(before: str, secret: str) -> None:
    assert f"Bearer {secret}" not in without_credentials(f"{before}\nAuthorization: Bearer {secret}")


@pytest.mark.parametrize(
    "part", ["\\", "\\n", "\n ", "token", "bearer ", "authorization:", "x-", "eyJ.", "://a:"]
)
def test_hostile_texts_take_linear_time(part: str) -> None:
    once, twice = (partial(without_credentials, f"key {part * count}") for count in (20_000, 40_000))
    assert faster_than_linear(once, twice) is None


def test_known_secrets_are_removed_the_longest_first() -> None:
    assert redact(
        "key-12345678-long, key-12345678, none", secrets_of(["key-12345678", "key-12345678-long", "none"])
    ) == ("[key], [key], none")
