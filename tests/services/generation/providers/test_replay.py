"""Recording completions and playing them back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2 as reasons
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.api.generation.v1.generation_service_pb2 import CheckProviderRequest
from dramaturg.service.errors import from_rpc_error
from dramaturg.service.settings import SettingsError
from services.generation.app import App
from tests.support.generation import GOOD, endpoint, generation_service, generation_settings
from tests.support.openai_server import Answer, Body, OpenAIServer


def replay(path: Path, **fields: Any) -> dict[str, Any]:
    return {"kind": "replay", "path": path, **fields}


async def test_what_was_recorded_plays_back_without_the_provider(tmp_path: Path) -> None:
    path = tmp_path / "recorded" / "run.jsonl"
    answers: dict[str, list[str | Answer]] = {
        "one": [GOOD],
        "two": ["{}", GOOD],
        "three": [Answer("", refusal="no")],
        "four": ["", GOOD],
    }

    def respond(body: Body) -> str | Answer:
        question = body["messages"][0]["content"]
        return answers[question].pop(0)

    async with OpenAIServer(respond) as server:
        providers = {
            "recording": replay(path, record_from="live"),
            "live": endpoint(server),
        }
        async with generation_service(providers=providers) as service:
            bought = [await service.generate(question) for question in ("one", "two", "three", "four")]
        assert server.calls.total() == 6
    assert path.read_text().count("\n") == 6
    settings = {"played": replay(path, default_model="m")}
    async with generation_service(providers=settings) as service:
        played = [await service.generate(question) for question in ("one", "two", "three", "four")]
        listed = await service.generation.ListModels(pb.ListModelsRequest())
    assert list(listed.providers[0].models) == ["m"]
    recorded = [json.loads(line)["fingerprint"] for line in path.read_text().splitlines()]
    assert [call.fingerprint for completion in played for call in completion.calls] == recorded
    for before, after in zip(bought, played, strict=True):
        assert (after.status, after.json, list(after.repairs)) == (
            before.status,
            before.json,
            list(before.repairs),
        )
        assert [call.raw_text for call in after.calls] == [call.raw_text for call in before.calls]
        assert all(call.cached for call in after.calls)
        assert after.usage.provider_call_count == 0
        assert after.usage.cost_usd == 0
        assert before.usage.provider_call_count == len(before.calls)


async def test_a_missing_completion_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()
    async with generation_service(providers={"p": replay(path, default_model="m")}) as service:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await service.generate()
    error = from_rpc_error(raised.value)
    assert error.code is grpc.StatusCode.NOT_FOUND
    assert error.reason == reasons.ERROR_REASON_COMPLETION_NOT_RECORDED
    assert len(error.metadata["fingerprint"]) == 64
    assert error.metadata["fingerprint"] in error.message


async def test_equal_requests_at_once_are_recorded_once(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with OpenAIServer(lambda _: GOOD, latency=0.05) as server:
        providers = {"r": replay(path, record_from="live"), "live": endpoint(server)}
        async with generation_service(providers=providers) as service:
            await asyncio.gather(*(service.generate() for _ in range(20)))
        assert server.calls.total() == 1
    assert path.read_text().count("\n") == 1


async def test_the_recording_does_not_depend_on_the_endpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with OpenAIServer(lambda _: GOOD) as one, OpenAIServer(lambda _: GOOD) as two:
        for server in (one, two):
            providers = {"r": replay(path, record_from="live"), "live": endpoint(server)}
            async with generation_service(providers=providers) as service:
                await service.generate()
        assert (one.calls.total(), two.calls.total()) == (1, 0)


async def test_a_failure_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with OpenAIServer(lambda _: Answer("no", status=400)) as server:
        providers = {"r": replay(path, record_from="live"), "live": endpoint(server)}
        async with generation_service(providers=providers) as service:
            with pytest.raises(grpc.aio.AioRpcError):
                await service.generate()
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "fields", "names"),
    [
        (None, {}, "cannot be read"),
        ('{"fingerprint": "a"}\n', {}, "line 1"),
        ('\n{"fingerprint"\n', {}, "line 2"),
        ("", {"record_from": "nowhere"}, "nowhere"),
    ],
)
async def test_a_recording_that_cannot_be_used_is_named_at_the_start(
    tmp_path: Path, content: str | None, fields: dict[str, Any], names: str
) -> None:
    path = tmp_path / "run.jsonl"
    if content is not None:
        path.write_text(content)
    settings = generation_settings(providers={"p": replay(path, **fields)})
    with pytest.raises(SettingsError, match=names):
        async with App(settings).open():
            pass


async def test_a_recording_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text("")
    async with generation_service(providers={"p": replay(path, default_model="m")}) as service:
        check = (await service.generation.CheckProvider(CheckProviderRequest())).check
    assert (check.prompt_usd_per_million, check.price_source) == (0, "a recording")
    assert check.HasField("prompt_usd_per_million")
