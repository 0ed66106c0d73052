"""Cloud identities in place of keys: tokens are fetched once, renewed in time, and kept out of texts."""

from __future__ import annotations

import asyncio
import datetime
import time
from types import SimpleNamespace
from typing import Any

import pytest

from dramaturg.service.settings import SettingsError
from services.generation.calls import Call, FailureKind, Message, ProviderError, Role, Until
from services.generation.providers.factory import RENEW_SECONDS, open_providers
from tests.support.api_imitations import ImitationServer, Said, imitate
from tests.support.generation import generation_settings

CALL = Call("m", (Message(Role.USER, "Ready?"),))


class Cloud:
    """Credentials of both clouds, whose tokens are numbered."""

    def __init__(self, lifetime: float) -> None:
        self.lifetime = lifetime
        self.scopes: list[str] = []
        self.fault: Exception | None = None

    def token(self, scope: str) -> tuple[str, float]:
        self.scopes.append(scope)
        if self.fault is not None:
            raise self.fault
        return f"token-of-the-cloud-{len(self.scopes)}", time.time() + self.lifetime

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        azure, google = pytest.importorskip("azure.identity"), pytest.importorskip("google.auth")

        def get_token(scope: str) -> Any:
            token, ends = self.token(scope)
            return SimpleNamespace(token=token, expires_on=int(ends))

        def default(scopes: list[str]) -> Any:
            token, ends = self.token(scopes[0])
            expiry = datetime.datetime.fromtimestamp(ends, datetime.UTC).replace(tzinfo=None)
            return SimpleNamespace(token=token, expiry=expiry, refresh=lambda _: None), "project"

        monkeypatch.setattr(azure, "DefaultAzureCredential", lambda: SimpleNamespace(get_token=get_token))
        monkeypatch.setattr(google, "default", default)


async def tokens_sent(server: ImitationServer, calls: int, **fields: Any) -> list[str]:
    """The tokens of as many calls at once, twice."""
    settings = generation_settings(providers={"p": {**server.settings, **fields}})
    [configured] = open_providers(settings, {})
    assert configured.checked is not None
    try:
        for _ in range(2):
            await asyncio.gather(*(configured.checked.complete(CALL, Until(20)) for _ in range(calls)))
    finally:
        await configured.provider.close()
    return [headers["Authorization"].removeprefix("Bearer ") for headers in server.headers]


@pytest.mark.parametrize("kind", ["chat", "openai"])
@pytest.mark.parametrize(("identity", "scope"), [("azure", "cognitiveservices"), ("google", "googleapis")])
async def test_a_token_serves_until_shortly_before_its_end(
    monkeypatch: pytest.MonkeyPatch, kind: str, identity: str, scope: str
) -> None:
    long, short = Cloud(3600), Cloud(RENEW_SECONDS - 1)
    async with imitate(kind, lambda _: Said()) as server:
        long.install(monkeypatch)
        assert set(await tokens_sent(server, 3, identity=identity)) == {"token-of-the-cloud-1"}
        assert [scope in asked for asked in long.scopes] == [True]
        short.install(monkeypatch)
        assert len(set(await tokens_sent(server, 1, identity=identity, identity_scope="own"))) > 1
        assert set(short.scopes) == {"own"}


async def test_no_token_is_a_refused_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(3600)
    cloud.fault = RuntimeError("log in first")
    cloud.install(monkeypatch)
    async with imitate("chat", lambda _: Said()) as server:
        with pytest.raises(ProviderError, match="log in first") as raised:
            await tokens_sent(server, 1, identity="azure")
        assert raised.value.kind is FailureKind.UNAUTHENTICATED
        assert raised.value.settled
        assert server.asked == []


async def test_a_token_in_an_answer_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    Cloud(3600).install(monkeypatch)
    async with imitate("chat", lambda _: Said("It is token-of-the-cloud-1.")) as server:
        table = {**server.settings, "identity": "google"}
        [configured] = open_providers(generation_settings(providers={"p": table}), {})
        assert configured.checked is not None
        answer = await configured.checked.complete(CALL, Until(20))
        await configured.provider.close()
    assert "token-of" not in answer.text


async def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "azure.identity", None)
    table = {"kind": "chat", "identity": "azure"}
    with pytest.raises(SettingsError, match=r"dramaturg\[azure\]"):
        open_providers(generation_settings(providers={"p": table}), {})
