"""How few calls are refused, and how little time is lost, at every kind of limit; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generation.calls import Answer, Call, Message, Role, TokenCounts
from services.generation.deadlines import Deadline, Until
from services.generation.errors import FailureKind, ProviderError
from services.generation.limits.limiter import CallLimiter, Rates
from services.generation.limits.sliding_window import SlidingWindow as ConfiguredWindow
from services.generation.providers.base import Provider
from services.generation.providers.rate_limit_headers import read_quotas
from services.generation.providers.retry_after import retry_after
from services.generation.retries import RetryingProvider, RetryPolicy
from tests.support.limited_servers import (
    Concurrent,
    FixedWindow,
    LimitedServer,
    SingleSlot,
    SlidingWindow,
    TokenBucket,
    Unlimited,
)
from tests.support.virtual_time import run

Make = Callable[[Callable[[], float]], LimitedServer]
HOP = 0.01
"""Seconds from here to the server, and back."""


class ServerProvider(Provider):
    """Asks a server, without HTTP."""

    name = "p"
    address = "a"
    default_model = ""
    keeps = False

    def __init__(self, server: LimitedServer) -> None:
        self._server = server

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        await asyncio.sleep(HOP)
        answered, headers = await self._server.handle()
        await asyncio.sleep(HOP)
        quotas = read_quotas(headers)
        if answered:
            return Answer("x", quotas=quotas, counts=TokenCounts(40, 60))
        raise ProviderError(
            FailureKind.RATE_LIMITED,
            "p",
            "429",
            retry_after=retry_after(headers),
            settled=True,
            quotas=quotas,
        )

    async def models(self) -> Sequence[str]:
        return ()

    async def close(self) -> None:
        pass


class Asking:
    """What asking a server many questions at once took."""

    def __init__(self, make: Make, count: int, rates: Rates | None = None) -> None:
        self.server: LimitedServer
        self.wall = 0.0
        run(self._ask(make, count, rates))
        self.ratio = self.wall / self.server.ideal(count)
        later = [taken for at, taken in self.server.log if at > 60]
        self.calls_per_answer_later = len(later) / max(1, later.count(True))
        self.refused = self.server.calls - self.server.answers

    async def _ask(self, make: Make, count: int, rates: Rates | None) -> None:
        clock = asyncio.get_running_loop().time
        self.server = make(clock)
        provider = RetryingProvider(
            ServerProvider(self.server),
            CallLimiter(rates=lambda _: rates or Rates(), clock=clock),
            RetryPolicy(),
        )
        begun = clock()
        calls = [Call("m", (Message(Role.USER, str(number)),)) for number in range(count)]
        await asyncio.gather(*(provider.complete(call, Until(None)) for call in calls))
        self.wall = clock() - begun


@pytest.mark.parametrize(
    ("make", "count"),
    [
        pytest.param(lambda clock: Concurrent(clock, latency=1.0), 300, id="4 at once"),
        pytest.param(lambda clock: FixedWindow(clock, tells=True), 150, id="60 a minute, stated"),
        pytest.param(FixedWindow, 150, id="60 a minute, fixed window"),
        pytest.param(FixedWindow, 600, id="60 a minute, fixed window, ten minutes"),
        pytest.param(SlidingWindow, 300, id="60 a minute, sliding window"),
        pytest.param(TokenBucket, 150, id="bucket of 60"),
        pytest.param(
            lambda clock: TokenBucket(clock, capacity=6000, refill=100, cost=100, tells=True),
            150,
            id="tokens a minute, stated",
        ),
        pytest.param(
            lambda clock: TokenBucket(clock, capacity=6000, refill=100, cost=150), 150, id="tokens a minute"
        ),
        pytest.param(lambda clock: TokenBucket(clock, capacity=100), 300, id="burst, then steady"),
        pytest.param(
            lambda clock: TokenBucket(clock, capacity=100, refill=20, latency=2.0), 2000, id="fast bucket"
        ),
        pytest.param(lambda clock: FixedWindow(clock, most=5, latency=3.0), 15, id="5 a minute"),
        pytest.param(lambda clock: SingleSlot(clock, latency=6.0), 52, id="one at a time"),
        pytest.param(lambda clock: Unlimited(clock, latency=150.0), 32, id="150 s"),
    ],
)
def test_after_a_minute_few_calls_are_refused_and_little_time_is_lost(make: Make, count: int) -> None:
    asking = Asking(make, count)
    assert asking.server.answers == count
    # Of stated tokens and of fast buckets a few more calls are refused, until the refill is known.
    is_hard = isinstance(asking.server, TokenBucket) and (asking.server.tells or asking.server.refill > 10)
    assert asking.calls_per_answer_later <= (1.35 if is_hard else 1.1)
    assert asking.ratio <= 1.1


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda clock: SingleSlot(clock, latency=6.0), id="one at a time"),
        pytest.param(lambda clock: Unlimited(clock, latency=150.0), id="150 s"),
    ],
)
def test_slow_servers_are_asked_once_for_each_answer(make: Make) -> None:
    assert Asking(make, 52).server.calls == 52


def test_the_start_takes_no_more_than_one_burst() -> None:
    assert Asking(lambda clock: Concurrent(clock, latency=1.0), 300).server.calls <= 331


@pytest.mark.parametrize("make", [FixedWindow, SlidingWindow, TokenBucket])
def test_a_configured_rate_is_never_exceeded(make: Make) -> None:
    asking = Asking(make, 150, Rates(requests_per_minute=60))
    assert asking.refused == 0


def test_configured_tokens_are_never_exceeded() -> None:
    asking = Asking(
        lambda clock: TokenBucket(clock, capacity=6000, refill=100, cost=100),
        200,
        Rates(tokens_per_minute=6000),
    )
    assert asking.calls_per_answer_later <= 1.02  # how many tokens a call takes is known from the answers
    assert asking.ratio <= 1.4


@settings(deadline=None, max_examples=15)
@given(
    capacity=st.integers(10, 120),
    refill=st.floats(0.1, 10),
    latency=st.floats(0.05, 20),
    seconds=st.integers(100, 150),
)
def test_any_bucket_gives_every_answer_without_a_storm_of_calls(
    capacity: int, refill: float, latency: float, seconds: int
) -> None:
    count = round(capacity + refill * seconds)
    asking = Asking(lambda clock: TokenBucket(clock, latency, capacity=capacity, refill=refill), count)
    assert asking.server.answers == count
    assert asking.refused <= count + 100


@given(
    st.lists(st.tuples(st.floats(0, 30), st.floats(0.5, 20)), max_size=60),
    st.floats(20, 100),
)
def test_no_period_holds_more_than_the_configured_limit(
    calls: list[tuple[float, float]], limit: float
) -> None:
    window, now, sent = ConfiguredWindow(limit), 0.0, list[tuple[float, float]]()
    for pause, cost in calls:
        now += pause
        now += window.delay(now, cost)
        assert window.delay(now + 1e-6, cost) == 0
        now += 1e-6
        window.take(now, cost)
        sent.append((now, cost))
        assert sum(cost for at, cost in sent if at > now - 60) <= limit + 1e-6
