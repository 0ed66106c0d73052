"""CheckProvider: what works with a provider, and what to do where it does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from tests.providers.scripted_server import Reply, error, message, scripted_server
from tests.support.generation import generation_service
from tests.support.openai_server import Body

ALL = (
    pb.PROVIDER_FEATURE_TEXT,
    pb.PROVIDER_FEATURE_JSON_SCHEMA,
    pb.PROVIDER_FEATURE_JSON_OBJECT,
    pb.PROVIDER_FEATURE_LOGPROBS,
    pb.PROVIDER_FEATURE_LONG_PROMPT,
    pb.PROVIDER_FEATURE_REASONING,
    pb.PROVIDER_FEATURE_USAGE,
)


def able(body: Body) -> Reply:
    """Does everything."""
    formed = message('{"ready":true}' if "response_format" in body else "ready")
    if body.get("logprobs"):
        formed["choices"][0]["logprobs"] = {"content": [{"token": "ready", "logprob": -0.1}]}
    if body.get("reasoning_effort"):
        formed["choices"][0]["message"]["reasoning_content"] = "Hm."
    return Reply(formed)


def modest(body: Body) -> Reply:
    """Knows text alone, and says so."""
    for member in ("response_format", "logprobs", "reasoning_effort"):
        if member in body:
            return Reply(error(f"{member} is not supported"), 400)
    return Reply(message('{"ready":true}' if "JSON" in body["messages"][0]["content"] else "ready"))


async def check(
    script: Any, *features: int, model: str = "", path: str = "", **table: Any
) -> pb.ProviderCheck:
    async with scripted_server(script) as server:
        base_url = server.base_url.removesuffix("/v1") + path if path else server.base_url
        provider = {"base_url": base_url, "default_model": "m", **table}
        async with generation_service(providers={"p": provider}) as service:
            request = pb.CheckProviderRequest(model=model, features=features)  # type: ignore[arg-type]
            return (await service.generation.CheckProvider(request, timeout=20)).check


def statuses(found: pb.ProviderCheck) -> dict[str, str]:
    return {
        pb.ProviderFeature.Name(one.feature).removeprefix("PROVIDER_FEATURE_"): pb.FeatureStatus.Name(
            one.status
        ).removeprefix("FEATURE_STATUS_")
        for one in found.features
    }


async def test_a_provider_that_does_everything() -> None:
    found = await check(able, *ALL)
    assert (found.provider, found.model) == ("p", "m")
    assert set(statuses(found).values()) == {"OK"}
    assert len(found.features) == 8
    # The answers to the first check show whether token counts are stated.
    assert [one.usage.provider_call_count for one in found.features] == [0, 1, 1, 1, 1, 1, 1, 0]


async def test_what_the_model_answers_without_is_no_failure() -> None:
    found = await check(modest, *ALL)
    assert statuses(found) == {
        "CONNECTION": "OK",
        "TEXT": "OK",
        "JSON_SCHEMA": "NOT_SUPPORTED",
        "JSON_OBJECT": "NOT_SUPPORTED",
        "LOGPROBS": "NOT_SUPPORTED",
        "LONG_PROMPT": "OK",
        "REASONING": "NOT_SUPPORTED",
        "USAGE": "OK",
    }


async def test_the_connection_alone_buys_nothing() -> None:
    def never(body: Body) -> Reply:
        raise AssertionError("nothing is bought")

    found = await check(never)
    assert statuses(found) == {"CONNECTION": "OK"}


async def test_a_model_that_is_not_listed_is_named_with_those_like_it() -> None:
    found = await check(able, model="mm")
    assert "not this one" in found.features[0].detail


@pytest.mark.parametrize(
    ("reply", "reason", "remedy"),
    [
        (Reply(error("Incorrect API key provided"), 401), "PROVIDER_UNAUTHENTICATED", "key"),
        (Reply(error("The model `m` does not exist"), 404), "MODEL_UNKNOWN", "dramaturg providers"),
        (Reply(error("No deployment of this name"), 404), "MODEL_UNKNOWN", "dramaturg providers"),
        *(
            (Reply(error(said, code=code), status), "MODEL_UNKNOWN", "another API")
            for status, said, code in (
                (404, "This model is only supported in v1/responses and not in v1/chat/completions.", None),
                (404, "This is not a chat model. Did you mean to use v1/completions?", None),
                (400, "The chatCompletion operation does not work with the model.", "OperationNotSupported"),
            )
        ),
        (Reply(error("You have no credits", code=402), 402), "PROVIDER_CREDIT_EXHAUSTED", "credit"),
        (Reply(error("engine died"), 500), "PROVIDER_UNAVAILABLE", "server's log"),
    ],
)
async def test_a_failure_has_the_provider_s_words_and_a_remedy(
    reply: Reply, reason: str, remedy: str
) -> None:
    found = await check(lambda _: reply, pb.PROVIDER_FEATURE_TEXT)
    text = found.features[1]
    assert text.status == pb.FEATURE_STATUS_FAILED
    assert text.reason == reasons.ErrorReason.Value(f"ERROR_REASON_{reason}")
    assert reply.payload["error"]["message"] in text.detail
    assert remedy in text.remedy


@pytest.mark.parametrize(
    ("said", "code", "kind"),
    [
        ("This model is only supported in v1/responses and not in v1/chat/completions.", None, "openai"),
        ("This is not a chat model. Did you mean to use v1/completions?", None, "openai"),
        ("The chatCompletion operation does not work with the model.", "OperationNotSupported", "openai"),
        ("Please use the /v1/messages endpoint for this model.", None, "anthropic"),
    ],
)
async def test_a_model_of_another_api_names_the_kind_to_set(said: str, code: Any, kind: str) -> None:
    found = await check(lambda _: Reply(error(said, code=code), 400), pb.PROVIDER_FEATURE_TEXT)
    text = found.features[1]
    assert f'kind = "{kind}"' in text.detail
    assert said in text.detail
    assert "kind" in text.remedy


@pytest.mark.parametrize(
    ("said", "status"),
    [("Incorrect API key provided", 401), ("This model is only supported in v1/responses.", 404)],
)
async def test_a_lasting_failure_ends_the_check(said: str, status: int) -> None:
    found = await check(lambda _: Reply(error(said), status), *ALL)
    assert statuses(found) == {"CONNECTION": "OK", "TEXT": "FAILED"}


async def test_a_missing_version_in_the_address_is_found_without_a_purchase() -> None:
    found = await check(able, path="/v2")
    assert statuses(found) == {"CONNECTION": "FAILED"}
    assert found.features[0].reason == reasons.ERROR_REASON_PROVIDER_ADDRESS_INVALID
    assert "/v1" in found.features[0].remedy


async def test_a_dead_host_is_found() -> None:
    async with generation_service(
        providers={"p": {"base_url": "http://127.0.0.1:1/v1", "default_model": "m"}}
    ) as service:
        found = (await service.generation.CheckProvider(pb.CheckProviderRequest(), timeout=20)).check
    assert found.features[0].status == pb.FEATURE_STATUS_FAILED
    assert "cannot be reached" in found.features[0].detail
    assert "base_url" in found.features[0].remedy


async def test_a_connection_that_closes_after_an_error_is_made_again() -> None:
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        first = connections == 1
        head = await reader.readuntil(b"\r\n\r\n")
        status = b"500 Internal Server Error" if head.startswith(b"GET") else b"400 Bad Request"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        if first:
            # The next request arrives on a connection that closes.
            await reader.read(1)
        writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider = {"base_url": f"http://127.0.0.1:{port}/v1", "default_model": "m"}
    async with server, generation_service(providers={"p": provider}) as service:
        found = (await service.generation.CheckProvider(pb.CheckProviderRequest(), timeout=20)).check
    assert statuses(found) == {"CONNECTION": "OK"}, found.features[0].detail
    assert connections > 1


async def test_the_price_is_told(tmp_path: Any) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[m]\nprompt = 2.0\ncompletion = 8.0\n")
    found = await check(able, pb.PROVIDER_FEATURE_TEXT, prices=str(prices))
    assert (found.prompt_usd_per_million, found.completion_usd_per_million) == (2.0, 8.0)
    assert found.features[1].usage.cost_usd == pytest.approx((10 * 2 + 4 * 8) / 1e6)
