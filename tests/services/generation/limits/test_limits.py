"""How few calls are refused, and how little time is lost, at every kind of limit; in virtual time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generation.limits.concurrency import ConcurrencyBounds
from services.generation.limits.limiter import Rates
from services.generation.limits.stated_quotas import SlidingWindow as ConfiguredWindow
from services.generation.retries import RetryPolicy
from tests.support.limit_simulation import Faults, MakeServer, Simulation
from tests.support.limited_servers import (
    Concurrent,
    FixedWindow,
    SingleSlot,
    SlidingWindow,
    TokenBucket,
    Unlimited,
)

SEEDS = range(4)


@dataclass
class Outage(Unlimited):
    """Refuses every call for a time."""

    begins: float = 2.0
    ends: float = 32.0

    def refuse(self) -> bool:
        return self.begins <= self.clock() < self.ends


@dataclass
class Changing(Concurrent):
    """Serves another number of calls at once from some moment on."""

    later: int = 4
    changes: float = 60.0

    def refuse(self) -> bool:
        if self.clock() >= self.changes:
            self.most = self.later
        return super().refuse()


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
def test_after_a_minute_few_calls_are_refused_and_little_time_is_lost(make: MakeServer, count: int) -> None:
    for seed in SEEDS:
        asked = Simulation(make, count=count, seed=seed)
        assert asked.server.answers == count
        assert asked.calls_per_answer_later <= 1.1
        assert asked.ratio <= 1.1


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda clock: SingleSlot(clock, latency=6.0), id="one at a time"),
        pytest.param(lambda clock: Unlimited(clock, latency=150.0), id="150 s"),
    ],
)
def test_slow_servers_are_asked_once_for_each_answer(make: MakeServer) -> None:
    asked = Simulation(make, count=52)
    assert asked.calls == 52
    assert asked.ratio <= 1.1


def test_the_start_takes_no_more_than_one_burst() -> None:
    assert Simulation(lambda clock: Concurrent(clock, latency=1.0), count=300).calls <= 331


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fast_server_of_few_calls_at_once_is_kept_busy(seed: int) -> None:
    asked = Simulation(
        lambda clock: Concurrent(clock, 0.02, most=12),
        count=300,
        bounds=ConcurrencyBounds(start=2, maximum=64),
        policy=RetryPolicy(first_wait=0.02, longest_wait=0.1),
        seed=seed,
    )
    # The shortest possible time, with 20 ms for the ways, is 1.0 s.
    assert asked.wall <= 2.0
    assert asked.calls_per_answer <= 1.3


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("share", "seconds"), [(0.1, 40), (0.4, 160)])
def test_refusals_at_random_stop_nothing(share: float, seconds: float, seed: int) -> None:
    asked = Simulation(lambda clock: Unlimited(clock), count=1000, faults=Faults(refused=share), seed=seed)
    assert not asked.failures
    assert asked.wall <= seconds
    assert asked.calls_per_answer <= 1.1 / (1 - share)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_faults_at_once_stop_nothing(seed: int) -> None:
    asked = Simulation(
        lambda clock: Unlimited(clock, 0.02),
        count=500,
        faults=Faults(refused=0.09, failed=0.36, hung=0.09),
        policy=RetryPolicy(attempt_timeout=0.5, transient_attempts=20, first_wait=0.0),
        seed=seed,
    )
    assert not asked.failures
    assert asked.wall <= 10


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("seconds", [5.0, 30.0])
def test_an_outage_is_forgotten_soon(seconds: float, seed: int) -> None:
    asked = Simulation(lambda clock: Outage(clock, ends=2 + seconds), count=2000, seed=seed)
    assert asked.refused <= 120
    assert asked.wall <= 2.5 * seconds + 15


@pytest.mark.parametrize(("most", "later"), [(4, 12), (12, 4)])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_changed_number_of_calls_at_once_is_learned(most: int, later: int, seed: int) -> None:
    asked = Simulation(lambda clock: Changing(clock, 1.0, most=most, later=later), count=600, seed=seed)
    assert asked.wall <= 1.25 * (60 + (600 - 60 * most) / later if most < later else 600 / 5.6)
    assert asked.calls_per_answer <= 1.2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rate_of_one_model_does_not_hold_up_another(seed: int) -> None:
    asked = Simulation(FixedWindow, lambda clock: Concurrent(clock, 1.0, most=8), count=200, seed=seed)
    assert asked.ratio <= 1.1
    assert asked.calls_per_answer <= 1.25


def test_a_server_that_lets_calls_wait_too_long_gets_fewer() -> None:
    asked = Simulation(lambda clock: SingleSlot(clock, 6.0), count=52, policy=RetryPolicy(attempt_timeout=60))
    assert not asked.failures
    assert asked.ratio <= 1.1


@pytest.mark.parametrize("make", [FixedWindow, SlidingWindow, TokenBucket])
def test_a_configured_rate_is_never_exceeded(make: MakeServer) -> None:
    asked = Simulation(make, count=150, rates=Rates(requests_per_minute=60))
    assert asked.refused == 0


def test_configured_tokens_are_never_exceeded() -> None:
    asked = Simulation(
        lambda clock: TokenBucket(clock, capacity=6000, refill=100, cost=100),
        count=200,
        rates=Rates(tokens_per_minute=6000),
    )
    assert asked.calls_per_answer_later <= 1.02  # how many tokens a call takes is known from the answers
    assert asked.ratio <= 1.4


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
    asked = Simulation(
        lambda clock: TokenBucket(clock, latency, capacity=capacity, refill=refill), count=count
    )
    assert asked.server.answers == count
    assert asked.refused <= count + 100


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
