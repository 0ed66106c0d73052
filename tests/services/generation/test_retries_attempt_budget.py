"""The budget of failed attempts of a request, over calls to a real server."""

from __future__ import annotations

import asyncio

import pytest

from dramaturg.service import context
from dramaturg.service.auth.caller import on_behalf_of
from dramaturg.service.context import RequestContext
from services.generation.calls import Call, Message, ProviderError, Role, Until
from services.generation.limits.limiter import CallLimiter
from services.generation.providers.openai_compatible import OpenAICompatibleProvider
from services.generation.retries import IDLE_SECONDS, AttemptBudget, RetryingProvider, RetryPolicy
from tests.support.clocks import Clock
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
            assert all("500" in one or "no other is made" in one for one in said)
        assert len(server.requests) <= 12
        assert "12 attempts for this request failed" in said[0]
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


@pytest.mark.parametrize(("replicas", "attempts"), [(2, 6), (4, 3), (8, 2)])
async def test_replicas_divide_the_failures_of_a_request(replicas: int, attempts: int) -> None:
    """Each call has its own attempts all the same, here two."""
    async with OpenAIServer(respond) as server:
        policy = RetryPolicy(first_wait=0.0, longest_wait=0.0, transient_attempts=2)
        endpoint = OpenAICompatibleProvider("p", server.base_url)
        provider = RetryingProvider(endpoint, CallLimiter(), policy)
        provider.divide(replicas)
        assert await ask(provider, "other", "hello") == "fine"
        server.forget()
        for place in range(9):
            await ask(provider, "sample", f"poison {place}")
        assert len(server.requests) == attempts
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


async def test_a_tenant_that_uses_the_request_id_of_another_has_a_budget_and_words_of_its_own() -> None:
    async with OpenAIServer(lambda body: Answer(str(body["messages"][-1]["content"]), status=500)) as server:
        endpoint = OpenAICompatibleProvider("p", server.base_url)
        provider = RetryingProvider(endpoint, CallLimiter(), RetryPolicy(first_wait=0.0, longest_wait=0.0))
        for tenant, text, calls in (("team-a", "the secret of a", 12), ("team-b", "b", 1)):
            server.forget()
            with on_behalf_of(tenant):
                said = [await ask(provider, "sample", text) for _ in range(calls)]
            assert 1 < len(server.requests) <= 12
        assert "secret" not in said[0]
        await provider.close()


def test_a_request_that_comes_again_after_a_while_is_a_new_one() -> None:
    clock = Clock()
    budget = AttemptBudget(2, clock.monotonic)

    def fails() -> bool:
        """Whether another attempt is made, which fails."""
        with context.scope(RequestContext("same")), budget.request() as request:
            if budget.is_exhausted(request):
                return False
            request.in_flight += 1
            request.failed += 1
            budget.ended(request)
            return True

    assert [fails() for _ in range(3)] == [True, True, False]
    clock.now += IDLE_SECONDS
    assert not fails()
    # What is refused is no attempt: it does not put the end off.
    clock.now += 1
    assert fails()


def test_a_request_with_a_call_in_progress_is_not_forgotten() -> None:
    clock = Clock()
    budget = AttemptBudget(2, clock.monotonic)
    with context.scope(RequestContext("same")), budget.request() as waiting:
        clock.now += 2 * IDLE_SECONDS
        with budget.request() as request:
            assert request is waiting
