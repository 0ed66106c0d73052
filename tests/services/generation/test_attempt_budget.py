"""The budget of failed attempts of a request, over calls to a real server."""

from __future__ import annotations

import asyncio

import pytest

from dramaturg.service import context
from dramaturg.service.context import RequestContext
from services.generation.calls import Call, Message, Role
from services.generation.deadlines import Until
from services.generation.errors import ProviderError
from services.generation.limits.limiter import CallLimiter
from services.generation.providers.openai_compatible import OpenAICompatibleProvider
from services.generation.retries import RetryingProvider, RetryPolicy
from tests.support.openai_server import Answer, Body, OpenAIServer


def call(text: str) -> Call:
    return Call("m", (Message(Role.USER, text),))


def respond(body: Body) -> Answer:
    text = str(body["messages"][-1]["content"])
    return Answer("broken", status=500) if "poison" in text else Answer("fine")


async def ask(provider: RetryingProvider, request_id: str, text: str) -> str:
    with context.scope(RequestContext(request_id)):
        try:
            return (await provider.complete(call(text), Until(20))).text
        except ProviderError as fault:
            return str(fault)


async def test_all_calls_of_a_request_share_its_failures() -> None:
    async with OpenAIServer(respond) as server:
        endpoint = OpenAICompatibleProvider("p", server.base_url)
        policy = RetryPolicy(first_wait=0.0, longest_wait=0.0)
        provider = RetryingProvider(endpoint, CallLimiter(), policy)
        # The provider works, so that the circuit breaker stops nothing.
        assert await ask(provider, "other", "hello") == "fine"
        server.forget()
        for _ in range(5):
            said = await asyncio.gather(*(ask(provider, "sample", f"poison {place}") for place in range(4)))
            assert all("broken" in one or "500" in one for one in said)
        assert len(server.requests) <= 12
        assert "attempts for this request failed" in said[0]
        assert await ask(provider, "next", "hello") == "fine"
        await provider.close()


@pytest.mark.parametrize("answered", [0, 6])
async def test_answers_allow_further_failures(answered: int) -> None:
    async with OpenAIServer(respond) as server:
        endpoint = OpenAICompatibleProvider("p", server.base_url)
        policy = RetryPolicy(first_wait=0.0, longest_wait=0.0, request_failures=4)
        provider = RetryingProvider(endpoint, CallLimiter(), policy)
        assert await ask(provider, "other", "hello") == "fine"
        for place in range(answered):
            assert await ask(provider, "sample", f"hello {place}") == "fine"
        server.forget()
        for place in range(9):
            await ask(provider, "sample", f"poison {place}")
        assert len(server.requests) == 4 + answered // 2
        await provider.close()


async def test_each_process_has_a_budget_of_its_own() -> None:
    async with OpenAIServer(respond) as server:
        policy = RetryPolicy(first_wait=0.0, longest_wait=0.0)
        # Replicas, or the same service before and after a restart.
        providers = [
            RetryingProvider(OpenAICompatibleProvider("p", server.base_url), CallLimiter(), policy)
            for _ in range(2)
        ]
        for provider in providers:
            assert await ask(provider, "other", "hello") == "fine"
        server.forget()
        for place in range(8):
            for provider in providers:
                await ask(provider, "sample", f"poison {place}")
        assert len(server.requests) == 12 * len(providers)
        for provider in providers:
            await provider.close()
