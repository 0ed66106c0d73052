"""Patience with a provider: attempts, waits between them, and when to stop. No one else retries."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass

from services.generation.calls import Answer, Call
from services.generation.deadlines import Deadline, timeout
from services.generation.errors import DeadlinePassedError, FailureKind, ProviderError
from services.generation.limiter import AdaptiveLimiter, Outcome
from services.generation.metrics import RETRIES
from services.generation.providers.base import Provider

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to try. All times are in seconds."""

    attempt_timeout: float = 120.0
    """After this an attempt is taken for hung and made again."""
    transient_attempts: int = 6
    """The most attempts that end in a passing failure. Rate limits do not count: they are waited out."""
    first_wait: float = 0.5
    """The wait after the first failure is drawn from 0 to this; it doubles with every further one."""
    longest_wait: float = 30.0
    """Up to this. A longer wait that the provider asks for is kept to."""


class RetryingProvider(Provider):
    """A provider with its limit and its retries.

    Exponential backoff with full jitter (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog,
    2015); a wait that the provider asks for is never cut short. A slot is held during an attempt only.
    """

    def __init__(
        self,
        inner: Provider,
        limiter: AdaptiveLimiter,
        policy: RetryPolicy,
    ) -> None:
        self._inner = inner
        self.limiter = limiter
        self._policy = policy
        self.name = inner.name
        self.address = inner.address
        self.default_model = inner.default_model
        self.keeps = inner.keeps

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """Asks until there is an answer, a failure that does not pass, or no time for another attempt.

        Raises:
            ProviderError: the last failure.
            DeadlinePassedError: the time was over with no failure before.
        """
        retried = transient = 0
        fault: ProviderError | None = None
        while True:
            try:
                answer = await self._attempt(call, deadline)
            except DeadlinePassedError:
                if fault is not None:
                    raise fault from None
                raise
            except ProviderError as failed:
                fault = failed
            else:
                answer.retried += retried
                return answer
            transient += fault.kind is FailureKind.TRANSIENT
            wait = self._wait(retried, fault.retry_after)
            exhausted = transient >= self._policy.transient_attempts
            if exhausted or not fault.passes or wait >= deadline.remaining():
                raise fault
            retried += 1
            RETRIES.add(self.name, fault.kind.value)
            logger.info(
                "provider %s: %s; attempt %d in %.2f s", self.name, fault.kind.value, retried + 1, wait
            )
            await asyncio.sleep(wait)

    def _wait(self, failures: int, retry_after: float | None) -> float:
        ceiling = min(self._policy.longest_wait, self._policy.first_wait * 2.0 ** min(failures, 32))
        jitter = random.uniform(0.0, ceiling)  # noqa: S311 - spreads load, protects nothing
        return (retry_after or 0.0) + jitter

    async def _attempt(self, call: Call, deadline: Deadline) -> Answer:
        if not self.limiter.try_acquire():
            try:
                async with asyncio.timeout(timeout(deadline)):
                    await self.limiter.acquire()
            except TimeoutError:
                raise DeadlinePassedError(f"no turn at provider {self.name!r} before the deadline") from None
        outcome, retry_after = Outcome.OTHER, None
        try:
            async with asyncio.timeout(timeout(deadline, self._policy.attempt_timeout)):
                answer = await self._inner.complete(call, deadline)
            outcome = Outcome.ANSWERED
        except TimeoutError:
            if deadline.remaining() <= 0:
                raise DeadlinePassedError(
                    f"no answer of provider {self.name!r} before the deadline"
                ) from None
            limit = self._policy.attempt_timeout
            raise ProviderError(FailureKind.TRANSIENT, self.name, f"no answer within {limit:g} s") from None
        except ProviderError as fault:
            if fault.kind is FailureKind.RATE_LIMITED:
                outcome, retry_after = Outcome.RATE_LIMITED, fault.retry_after
            raise
        finally:
            self.limiter.release(outcome, retry_after)
        return answer

    async def models(self) -> Sequence[str]:
        """The names of the provider's models; asked once, within one attempt's time."""
        try:
            async with asyncio.timeout(self._policy.attempt_timeout):
                return await self._inner.models()
        except TimeoutError:
            limit = self._policy.attempt_timeout
            raise ProviderError(FailureKind.TRANSIENT, self.name, f"no answer within {limit:g} s") from None

    async def close(self) -> None:
        """Closes the provider."""
        await self._inner.close()
