"""Keys reach the provider and no one else."""

from __future__ import annotations

import json
import logging
import sqlite3
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.service.settings import SettingsError
from services.generation.app import App
from services.generation.providers.factory import open_providers
from tests.providers.scripted_server import Reply, error, message, scripted_server
from tests.support.generation import (
    GOOD,
    WITHOUT_WAITS,
    Service,
    endpoint,
    generation_service,
    generation_settings,
    request,
)
from tests.support.openai_server import Answer, OpenAIServer

SECRET = "sk-planted-0123456789abcdef"


async def messages_of(service: Service) -> list[str]:
    """What callers see of a question and of the list of models, errors included."""
    seen = []
    try:
        seen.append(str(await service.generate()))
    except grpc.aio.AioRpcError as error:
        seen += [str(error), repr(error), str(error.trailing_metadata())]
    seen.append(str(await service.generation.ListModels(pb.ListModelsRequest())))
    return seen


@pytest.mark.parametrize(
    "answer",
    [
        Answer(GOOD),
        Answer(f"bad key {SECRET}", status=401),
        Answer(f"bad request by {SECRET}", status=400),
        Answer(f"out of order: {SECRET}", status=500),
    ],
)
async def test_a_key_is_sent_and_never_shown(
    answer: Answer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TEST_KEY", SECRET)
    async with OpenAIServer(lambda _: answer) as server:
        table = endpoint(server, api_key_env="TEST_KEY")
        table["retries"] = table["retries"] | {"transient_attempts": 2}
        async with generation_service(providers={"p": table}) as service:
            seen = await messages_of(service)
        assert server.requests[0].headers["Authorization"] == f"Bearer {SECRET}"
    settings = generation_settings(providers={"p": table})
    (configured,) = open_providers(settings, {"TEST_KEY": SECRET})
    seen += [repr(settings), repr(configured), settings.model_dump_json(), caplog.text]
    await configured.provider.close()
    assert not [text for text in seen if SECRET in text or SECRET[:12] in text]


async def test_a_placeholder_of_a_key_does_not_distort_what_the_provider_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = "there is no model of that name"
    for key, shown in (("e", said), ("no", said), ("that name", "there is no model of [key]")):
        monkeypatch.setenv("TEST_KEY", key)
        async with (
            OpenAIServer(lambda _: Answer(said, status=400)) as server,
            generation_service(providers={"p": endpoint(server, api_key_env="TEST_KEY")}) as service,
        ):
            assert shown in (await messages_of(service))[0]


async def test_a_key_that_the_provider_refuses_is_not_quoted() -> None:
    async with OpenAIServer(api_key="another") as server, generation_service(server) as service:
        seen = await messages_of(service)
    assert not [text for text in seen if "Bearer" in text]


async def test_a_key_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(SECRET + "\n")
    async with (
        OpenAIServer(lambda _: GOOD, api_key=SECRET) as server,
        generation_service(providers={"p": endpoint(server, api_key_file=file)}) as service,
    ):
        assert (await service.generate()).json == GOOD


async def test_a_key_that_changes_is_used_without_a_restart_and_removed_like_the_first(
    tmp_path: Path,
) -> None:
    file = tmp_path / "key"
    file.write_text("first-" + SECRET)
    async with (
        OpenAIServer(lambda _: Answer(f"no: {SECRET}, first-{SECRET}, next-{SECRET}", status=400)) as server,
        generation_service(providers={"p": endpoint(server, api_key_file=file)}) as service,
    ):
        await messages_of(service)
        replaced = tmp_path / "replaced"
        replaced.write_text("next-" + SECRET)
        replaced.rename(file)
        seen = await messages_of(service)
        file.unlink()
        await messages_of(service)
        sent = [request.headers["Authorization"] for request in server.requests]
    assert sent == [f"Bearer first-{SECRET}", *[f"Bearer next-{SECRET}"] * (len(sent) - 1)]
    assert len(sent) >= 3
    assert not [text for text in seen if f"first-{SECRET}" in text or f"next-{SECRET}" in text]


async def test_the_provider_gets_the_request_id() -> None:
    async with OpenAIServer(lambda _: GOOD) as server, generation_service(server) as service:
        await service.generation.Generate(request(), metadata=(("x-request-id", "one"),))
        sent = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert sent["x-client-request-id"] == "one"
    assert "x-request-id" not in sent  # some servers take it as the identity of a call


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"api_key_env": "NOT_SET"}, "NOT_SET"),
        ({"api_key_file": "/nowhere/key"}, "/nowhere/key"),
        ({"prices": "/nowhere/prices.toml"}, "/nowhere/prices.toml"),
    ],
)
async def test_what_is_missing_is_named_at_the_start(fields: dict[str, Any], names: str) -> None:
    settings = generation_settings(providers={"p": {"kind": "chat", **fields}})
    with pytest.raises(SettingsError, match=names):
        async with App(settings).open():
            pass


async def test_what_the_environment_says_of_an_account_at_openai_stays_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, SECRET)
    async with OpenAIServer(lambda _: GOOD) as server, generation_service(server) as service:
        await service.generate()
        assert SECRET not in str(server.requests[0].headers)


KEY = "sk-planted/0123+456789abcdef"
ECHOES = {
    "as it is": KEY,
    "bearer": f"Bearer {KEY}",
    "escaped": f"Bearer {KEY}",
    "base64": b64encode(KEY.encode()).decode(),
    "base64 of the header": b64encode(f"Bearer {KEY}".encode()).decode(),
    "base64 of a pair": b64encode(f"user:{KEY}:x".encode()).decode(),
    "base64 for URLs": urlsafe_b64encode(KEY.encode()).decode(),
    "URL-encoded": quote(KEY, safe=""),
    "URL-encoded base64": quote(b64encode(KEY.encode()), safe=""),
}
"""What an endpoint that echoes headers may make of a key."""


def streamed(echo: str) -> Reply:
    parts = [echo[start : start + 3] for start in range(0, len(echo), 3)]
    events: list[Any] = [{"model": echo, "choices": [{"delta": {"content": part}}]} for part in parts]
    return Reply(events=[*events, {"choices": [{"delta": {}, "finish_reason": "stop"}]}, "[DONE]"])


def with_tokens(echo: str) -> Reply:
    body = message("fine")
    parts = [echo[start : start + 3] for start in range(0, len(echo), 3)]
    body["choices"][0]["logprobs"] = {"content": [{"token": part, "logprob": -0.1} for part in parts]}
    return Reply(body)


ANSWERS: dict[str, Callable[[str], Reply]] = {
    "text": lambda echo: Reply(message(f"you sent {echo}.")),
    "model": lambda echo: Reply(message("fine") | {"model": echo}),
    "refusal": lambda echo: Reply(message(None, refusal=echo)),
    "reasoning": lambda echo: Reply(message("fine", reasoning_content=echo)),
    "finish reason": lambda echo: Reply(message("fine", finish=echo)),
    "tool": lambda echo: Reply(
        message(None, finish="tool_calls", tool_calls=[{"function": {"name": 60 * "x" + echo}}])
    ),
    "token counts": lambda echo: Reply(message("fine", usage={"prompt_tokens": 150 * "x" + echo})),
    "tokens": with_tokens,
    "stream": streamed,
    "no choices": lambda echo: Reply({"headers": 150 * "x" + echo}),
    "error": lambda echo: Reply(error(f"bad request by {echo}"), 400),
    "long error": lambda echo: Reply(error(490 * "x" + echo), 400),
    "page": lambda echo: Reply(f"<html>{echo}</html>".encode(), 500),
    "filter": lambda echo: Reply(error(f"content policy: {echo}"), 400),
}


@pytest.mark.parametrize("form", ECHOES)
@pytest.mark.parametrize("place", ANSWERS)
async def test_a_key_that_a_provider_echoes_is_neither_returned_nor_kept(
    place: str, form: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TEST_KEY", KEY)
    reply = ANSWERS[place](ECHOES[form])
    if form == "escaped" and reply.events is None and not isinstance(reply.payload, bytes):
        escaped = json.dumps(reply.payload).replace("/", "\\/").replace("+", "\\u002b")
        reply = replace(reply, payload=escaped.encode())
    async with scripted_server(lambda _: reply) as server:
        retries = {**WITHOUT_WAITS, "transient_attempts": 1}
        table = {"base_url": server.base_url, "default_model": "m", "api_key_env": "TEST_KEY"}
        providers = {"p": {**table, "retries": retries}}
        ledger = tmp_path / "ledger.sqlite3"
        async with generation_service(providers=providers, ledger=str(ledger)) as service:
            try:
                seen = str(await service.generate(json_format=False, logprobs=place == "tokens"))
            except grpc.aio.AioRpcError as raised:
                seen = f"{raised}{raised.trailing_metadata()}"
    kept = "".join(sqlite3.connect(ledger).iterdump())
    # Parts too: what is cut after it is filtered.
    echo = ECHOES[form]
    secret = echo.removeprefix("Bearer ")[8:20]
    for shown in (seen, kept, caplog.text):
        assert secret not in shown
        assert secret not in shown.replace("\\/", "/")
    if place == "tokens":
        assert "spell a key" in seen
        assert "logprob: " not in seen
