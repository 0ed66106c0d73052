"""Calls through the limiter and the retries to a modelled server, in virtual time.

A simulation makes no connection and never waits. It is determined by its server and its seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.generation.calls import (
    Answer,
    Call,
    Deadline,
    FailureKind,
    Message,
    ProviderError,
    Role,
    TokenCounts,
    Until,
)
from services.generation.limits.concurrency import ConcurrencyBounds
from services.generation.limits.limiter import CallLimiter, Rates
from services.generation.providers.base import Provider
from services.generation.providers.refusals import read_quotas, retry_after
from services.generation.retries import RetryingProvider, RetryPolicy
from tests.support.limited_servers import LimitedServer
from tests.support.virtual_time import run

MakeServer = Callable[[Callable[[], float]], LimitedServer]


@dataclass(frozen=True)
class Faults:
    """The shares of calls that meet a fault before they reach the server."""

    refused: float = 0.0
    """429, at any load."""
    failed: float = 0.0
    """500."""
    hung: float = 0.0
    """No answer."""
    retry_after: str | None = None
    """The Retry-After of refusals."""


class ServerProvider(Provider):
    """Sends calls to servers, by model, without HTTP.

    A way takes 5 to 15 ms, so calls sent together arrive in another order.
    """

    name = "p"
    address = "a"
    default_model = ""
    keeps = False

    def __init__(self, servers: dict[str, LimitedServer], faults: Faults, seed: int) -> None:
        self._servers = servers
        self._faults = faults
        self._random = random.Random(seed)
        self.calls = 0

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        self.calls += 1
        draw = self._random.random()
        await asyncio.sleep(self._random.uniform(0.005, 0.015))
        faults = self._faults
        if draw < faults.refused:
            await asyncio.sleep(self._random.uniform(0.005, 0.015))
            raise self._refusal({} if faults.retry_after is None else {"retry-after": faults.retry_after})
        if draw < faults.refused + faults.failed:
            raise ProviderError(FailureKind.TRANSIENT, "p", "500")
        if draw < faults.refused + faults.failed + faults.hung:
            await asyncio.Event().wait()
        answered, headers = await self._servers[call.model].handle()
        await asyncio.sleep(self._random.uniform(0.005, 0.015))
        if not answered:
            raise self._refusal(headers)
        return Answer("x", quotas=read_quotas(headers), counts=TokenCounts(40, 60))

    def _refusal(self, headers: Mapping[str, str]) -> ProviderError:
        return ProviderError(
            FailureKind.RATE_LIMITED,
            "p",
            "429",
            retry_after=retry_after(headers),
            settled=True,
            quotas=read_quotas(headers),
        )

    async def models(self) -> Sequence[str]:
        return ()

    async def close(self) -> None:
        pass


class Simulation:
    """Asks servers many questions at once, and counts.

    Attributes:
        server: The first server.
        calls: Calls sent, to all servers.
        wall: Seconds until the last answer.
        failures: Calls that failed for good.
        limiter: The limiter, as it was left.
    """

    def __init__(
        self,
        *makes: MakeServer,
        count: int,
        rates: Rates | None = None,
        faults: Faults | None = None,
        bounds: ConcurrencyBounds | None = None,
        policy: RetryPolicy | None = None,
        seed: int = 0,
    ) -> None:
        self.count = count * len(makes)
        self.servers: list[LimitedServer] = []
        random.seed(seed)
        run(self._ask(makes, rates or Rates(), faults or Faults(), bounds, policy or RetryPolicy(), seed))
        self.server = self.servers[0]

    async def _ask(
        self,
        makes: Sequence[MakeServer],
        rates: Rates,
        faults: Faults,
        bounds: ConcurrencyBounds | None,
        policy: RetryPolicy,
        seed: int,
    ) -> None:
        clock = asyncio.get_running_loop().time
        servers = {f"m{number}": make(clock) for number, make in enumerate(makes)}
        self.servers = list(servers.values())
        self.limiter = CallLimiter(
            bounds, rates=lambda _: rates, clock=clock, attempt_timeout=policy.attempt_timeout
        )
        inner = ServerProvider(servers, faults, seed)
        provider = RetryingProvider(inner, self.limiter, policy)
        begun = clock()
        calls = [
            Call(model, (Message(Role.USER, str(number)),))
            for number in range(self.count // len(makes))
            for model in servers
        ]
        answers = await asyncio.gather(
            *(provider.complete(call, Until(None)) for call in calls), return_exceptions=True
        )
        self.wall = clock() - begun
        self.failures = [answer for answer in answers if isinstance(answer, BaseException)]
        self.calls = inner.calls
        self.refused = sum(server.calls - server.answers for server in servers.values())

    @property
    def calls_per_answer(self) -> float:
        """Calls sent for each answer."""
        return self.calls / self.count

    @property
    def calls_per_answer_later(self) -> float:
        """Calls that reached the first server for each that it took, after the first minute."""
        later = [taken for at, taken in self.server.log if at > 60]
        return len(later) / max(1, later.count(True))

    @property
    def ratio(self) -> float:
        """Wall time over the shortest possible one, of the slowest server."""
        each = self.count // len(self.servers)
        return self.wall / max(server.ideal(each) for server in self.servers)
