"""The test server itself: what it promises to whoever tests against it."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections import Counter
from typing import Any

import aiohttp
import pytest

from tests.support.openai_server import TROUBLES, Misbehaviour, OpenAIServer, in_thread

ROOT_MODULE = "tests.support.openai_server"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def post(base_url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{base_url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def test_trouble_comes_at_its_rate_and_again_the_same() -> None:
    misbehaviour = Misbehaviour.every_kind(0.05, seed=3)
    drawn = [misbehaviour.choose(f"request {number}", 0) for number in range(20_000)]
    counted = Counter(drawn)
    assert {trouble: counted[trouble] / len(drawn) for trouble in TROUBLES} == pytest.approx(
        dict.fromkeys(TROUBLES, 0.05), abs=0.01
    )
    assert drawn == [misbehaviour.choose(f"request {number}", 0) for number in range(20_000)]
    assert drawn != [misbehaviour.choose(f"request {number}", 1) for number in range(20_000)]


def test_rates_that_cannot_be_are_refused() -> None:
    for rates in ({"unheard_of": 0.1}, {"hang": 0.6, "empty": 0.6}):
        with pytest.raises(ValueError, match="rates"):
            Misbehaviour(rates)


def test_it_serves_from_a_thread() -> None:
    with in_thread(OpenAIServer(lambda body: body["messages"][0]["content"].upper())) as server:
        answer = post(server.base_url, BODY)
        assert answer["choices"][0]["message"]["content"] == "HELLO"
        assert server.calls.total() == server.answered.total() == 1
        post(server.base_url, dict(reversed(BODY.items())))
        assert list(server.calls.values()) == [2]


async def test_it_serves_as_a_process_and_tells_what_it_counted() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", ROOT_MODULE, "--text", "hi", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        base_url = (await process.stdout.readline()).decode().strip()
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{base_url}/chat/completions", json=BODY) as response:
                assert (await response.json())["choices"][0]["message"]["content"] == "hi"
            async with session.get(base_url.removesuffix("/v1") + "/stats") as response:
                assert sum((await response.json())["calls"].values()) == 1
    finally:
        process.terminate()
        await process.wait()
