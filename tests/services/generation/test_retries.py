"""Retries at a provider, without a gRPC deadline that would end the call before its reason is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from services.generation.calls import (
    Answer,
    Call,
    Deadline,
    DeadlinePassedError,
    FailureKind,
    Message,
    ProviderError,
    Role,
    Until,
)
from services.generation.completions import Completer
from services.generation.ledger import Ledger, open_ledger
from services.generation.limits.concurrency import ConcurrencyBounds
from services.generation.limits.limiter import CallLimiter
from services.generation.pricing import PriceTable
from services.generation.providers.base import Provider
from services.generation.providers.openai_compatible import OpenAICompatibleProvider
from services.generation.registry import ConfiguredProvider, Registry
from services.generation.retries import RetryingProvider, RetryPolicy
from tests.support.openai_server import Misbehaviour, OpenAIServer

CALL = Call("m", (Message(Role.USER, "hello"),))


@asynccontextmanager
async def patient(
    server: OpenAIServer, bounds: ConcurrencyBounds | None = None, **policy: float
) -> AsyncIterator[RetryingProvider]:
    waits = RetryPolicy(**{"first_wait": 0.0, "longest_wait": 0.0, **policy})  # type: ignore[arg-type]
    endpoint = OpenAICompatibleProvider("p", server.base_url)
    provider = RetryingProvider(endpoint, CallLimiter(bounds), waits)
    yield provider
    await provider.close()


async def test_a_hang_to_the_deadline_is_a_deadline_passed() -> None:
    async with OpenAIServer(misbehaviour=Misbehaviour({"hang": 1.0})) as server, patient(server) as provider:
        with pytest.raises(DeadlinePassedError, match="no answer of provider 'p'"):
            await provider.complete(CALL, Until(0.2))
        assert provider.limiter.in_flight == 0


async def test_a_hang_after_a_failure_is_that_failure() -> None:
    async with (
        OpenAIServer(misbehaviour=Misbehaviour({"hang": 1.0})) as server,
        patient(server, attempt_timeout=0.1) as provider,
    ):
        with pytest.raises(ProviderError, match=r"no answer within 0\.1 s") as raised:
            await provider.complete(CALL, Until(0.25))
    assert raised.value.kind is FailureKind.TRANSIENT


class SlowToCancel(Provider):
    """Refuses the first call; later calls hang, and take long to cancel."""

    name, address, default_model, keeps = "p", "a", "m", False

    def __init__(self) -> None:
        self._calls = 0
        self.released = asyncio.Event()

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        self._calls += 1
        if self._calls == 1:
            raise ProviderError(FailureKind.RATE_LIMITED, self.name, "slow down", settled=True)
        try:
            await asyncio.Event().wait()
        finally:
            await self.released.wait()
        raise AssertionError

    async def models(self) -> Sequence[str]:
        return ()

    async def close(self) -> None:
        pass


async def test_a_refusal_is_reported_at_the_deadline_while_a_later_attempt_still_ends() -> None:
    inner = SlowToCancel()
    provider = RetryingProvider(inner, CallLimiter(), RetryPolicy(first_wait=0.0, longest_wait=0.0))
    async with open_ledger("sqlite://") as ledger:
        completer = Completer(Registry([ConfiguredProvider(provider, PriceTable())]), ledger, str)
        with pytest.raises(ProviderError, match="slow down") as raised:
            await completer.complete(CALL, Until(0.1))
        assert raised.value.kind is FailureKind.RATE_LIMITED
        inner.released.set()


async def test_a_turn_that_never_comes_is_a_deadline_passed() -> None:
    bounds = ConcurrencyBounds(start=1, maximum=1)
    async with (
        OpenAIServer(misbehaviour=Misbehaviour({"hang": 1.0})) as server,
        patient(server, bounds) as provider,
    ):
        first = asyncio.create_task(provider.complete(CALL, Until(0.5)))
        await asyncio.sleep(0)
        with pytest.raises(DeadlinePassedError, match="no turn"):
            await provider.complete(CALL, Until(0.1))
        with pytest.raises(DeadlinePassedError, match="no answer"):
            await first
        assert (provider.limiter.in_flight, provider.limiter.waiting) == (0, 0)


async def test_waits_double_at_random_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    ceilings: list[float] = []

    def longest(_: float, ceiling: float) -> float:
        ceilings.append(ceiling)
        return 0.0

    monkeypatch.setattr("services.generation.retries.random.uniform", longest)
    async with (
        OpenAIServer(misbehaviour=Misbehaviour({"server_error": 1.0})) as server,
        patient(server, first_wait=1.0, longest_wait=5.0) as provider,
    ):
        with pytest.raises(ProviderError, match="500"):
            await provider.complete(CALL, Until(60))
    assert ceilings == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


async def test_an_answer_that_cannot_be_kept_is_given_and_said_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Ledger, "put", full)
    async with (
        OpenAIServer(lambda _: "text") as server,
        patient(server) as provider,
        open_ledger("sqlite://") as ledger,
    ):
        registry = Registry([ConfiguredProvider(provider, PriceTable())])
        completion = await Completer(registry, ledger, str).complete(CALL, Until(10))
    assert completion.text == "text"
    assert "no space left on device" in caplog.text


async def test_a_provider_that_only_fails_is_asked_a_few_times_whatever_is_asked_of_it() -> None:
    async with (
        OpenAIServer(misbehaviour=Misbehaviour({"server_error": 1.0})) as server,
        patient(server, first_wait=0.01, longest_wait=30.0) as provider,
    ):
        calls = [Call("m", (Message(Role.USER, str(number)),)) for number in range(100)]
        for _ in range(5):
            failures = await asyncio.gather(
                *(provider.complete(call, Until(20)) for call in calls), return_exceptions=True
            )
            assert all(isinstance(failure, ProviderError) for failure in failures)
            assert "attempts in a row failed" in str(failures[-1])
        assert server.calls.total() <= 12


async def test_a_provider_that_works_again_is_found_by_a_probe() -> None:
    async with (
        OpenAIServer(lambda _: "text", misbehaviour=Misbehaviour({"server_error": 1.0})) as server,
        patient(server, longest_wait=0.05) as provider,
    ):
        for _ in range(3):
            with pytest.raises(ProviderError):
                await provider.complete(CALL, Until(5))
        server.misbehaviour = Misbehaviour()
        async with asyncio.timeout(20):
            while True:
                with suppress(ProviderError):
                    answer = await provider.complete(CALL, Until(5))
                    break
                await asyncio.sleep(0.01)
    assert answer.text == "text"
