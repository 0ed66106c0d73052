"""Retries of provider calls: retried failures, waits and time limits of attempts.

No other module retries calls to providers.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass

from services.generation.attempt_budget import AttemptBudget, RequestAttempts
from services.generation.attempt_timeout import AttemptTimeout
from services.generation.calls import Answer, Call
from services.generation.circuit_breaker import PROOF_SECONDS, CircuitBreaker
from services.generation.deadlines import Deadline, timeout
from services.generation.errors import DeadlinePassedError, FailureKind, ProviderError
from services.generation.limits.limiter import CallLimiter, Outcome
from services.generation.metrics import RETRIES
from services.generation.providers.base import Provider

logger = logging.getLogger(__name__)


UNREACHABLE_ATTEMPTS = 3
"""The maximum number of attempts of a call to a provider that was never reached."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of retries. All times are in seconds."""

    attempt_timeout: float = 600.0
    """The initial time limit of an attempt (see [AttemptTimeout])."""
    transient_attempts: int = 6
    """The maximum number of attempts that end in a transient failure. Rate limits do not count."""
    first_wait: float = 0.5
    """The upper bound of the random wait after the first failure; it doubles with every further failure."""
    request_failures: int = 12
    """The maximum number of failed attempts of all calls of a request (see [AttemptBudget])."""
    longest_wait: float = 30.0
    """The upper bound of any wait, unless the provider requests a longer one."""


class RetryingProvider(Provider):
    """A provider with a limiter and retries.

    Waits after transient failures: exponential backoff with full jitter (Brooker, "Exponential Backoff And
    Jitter", AWS Architecture Blog, 2015). A wait that the provider asks for is never shortened. Time in the
    queue does not count as time of an attempt.
    """

    def __init__(
        self,
        inner: Provider,
        limiter: CallLimiter,
        policy: RetryPolicy,
    ) -> None:
        self._inner = inner
        self.limiter = limiter
        self._policy = policy
        self._timeout = AttemptTimeout(policy.attempt_timeout)
        self._breaker = CircuitBreaker(policy.longest_wait)
        self._budget = AttemptBudget(policy.request_failures)
        self._proven = asyncio.Event()
        """True after a successful attempt, or after several seconds without a failure."""
        self._unproven = asyncio.Semaphore(CircuitBreaker.FAILURES)
        self._usual_tokens = 0.0
        """The mean number of tokens of the latest calls."""
        self.name = inner.name
        self.address = inner.address
        self.default_model = inner.default_model
        self.keeps = inner.keeps

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """Repeats the call until it is answered, fails permanently, or has no time for another attempt.

        Raises:
            ProviderError: The last failure.
            DeadlinePassedError: The deadline passed without an earlier failure.
        """
        retried = transient = 0
        fault: ProviderError | None = None
        request = self._budget.current()
        while True:
            if self._budget.is_exhausted(request):
                raise fault or self._refusal(request)
            try:
                with self._budget.attempt(request):
                    answer = await self._attempt(call, deadline, first=retried > 0)
            except DeadlinePassedError:
                if fault is not None:
                    raise fault from None
                raise
            except ProviderError as failed:
                fault = deadline.failure = failed
            else:
                request.answered += 1
                answer.retried += retried
                return answer
            transient += fault.kind is FailureKind.TRANSIENT
            unreachable = not fault.status and not self._breaker.has_worked
            attempts = UNREACHABLE_ATTEMPTS if unreachable else self._policy.transient_attempts
            wait = self._wait(fault, retried, call.model)
            exhausted = transient >= min(attempts, self._policy.transient_attempts) or (
                self._breaker.is_open and fault.kind is FailureKind.TRANSIENT
            )
            if exhausted or not fault.passes or wait >= deadline.remaining():
                raise fault
            retried += 1
            RETRIES.add(self.name, fault.kind.value)
            logger.info(
                "provider %s: %s; attempt %d in %.2f s", self.name, fault.kind.value, retried + 1, wait
            )
            await asyncio.sleep(wait)

    def _refusal(self, request: RequestAttempts) -> ProviderError:
        said = f"{request.words} ({request.failed} attempts for this request failed; no other is made)"
        return ProviderError(FailureKind.TRANSIENT, self.name, said, settled=True)

    def _wait(self, fault: ProviderError, failures: int, model: str) -> float:
        if fault.kind is FailureKind.RATE_LIMITED and self.limiter.is_learned(model):
            return fault.retry_after or 0.0  # the limiter adds its own wait
        ceiling = min(self._policy.longest_wait, self._policy.first_wait * 2.0 ** min(failures, 32))
        jitter = random.uniform(0.0, ceiling)  # noqa: S311 - jitter, not cryptography
        return (fault.retry_after or 0.0) + jitter

    async def _attempt(self, call: Call, deadline: Deadline, *, first: bool) -> Answer:
        if self._proven.is_set():
            return await self._try(call, deadline, first=first)
        try:
            async with asyncio.timeout(timeout(deadline)):
                await self._unproven.acquire()
        except TimeoutError:
            raise DeadlinePassedError(f"no turn at provider {self.name!r} before the deadline") from None
        try:
            timer = asyncio.get_running_loop().call_later(PROOF_SECONDS, self._prove)
            try:
                return await self._try(call, deadline, first=first)
            finally:
                timer.cancel()
        finally:
            self._unproven.release()

    def _prove(self) -> None:
        """Releases all calls that wait for the first answer."""
        if not self._proven.is_set():
            self._proven.set()
            for _ in range(1000):
                self._unproven.release()

    async def _try(self, call: Call, deadline: Deadline, *, first: bool) -> Answer:
        clock = asyncio.get_running_loop().time
        self._breaker.check(self.name, clock())
        try:
            answer = await self._send(call, deadline, first=first)
        except ProviderError as fault:
            if fault.kind is FailureKind.TRANSIENT:
                self._budget.current().fail(fault)
                self._breaker.failed(fault, clock())
            elif fault.kind is FailureKind.RATE_LIMITED:
                self._breaker.worked(clock())  # but how many calls it takes is not known yet
            else:
                self._worked()
            raise
        self._worked()
        return answer

    def _worked(self) -> None:
        self._breaker.worked(asyncio.get_running_loop().time())
        self._prove()

    async def _send(self, call: Call, deadline: Deadline, *, first: bool) -> Answer:
        tokens = max(self._usual_tokens, sum([len(message.quoted) for message in call.messages]) / 4)
        admission = None if first else self.limiter.try_acquire(call.model, tokens)
        if admission is None:
            if self.limiter.delay(call.model, tokens) >= deadline.remaining():
                raise self._no_turn(call, tokens)
            try:
                async with asyncio.timeout(timeout(deadline)):
                    admission = await self.limiter.acquire(call.model, tokens, first=first)
            except TimeoutError:
                raise self._no_turn(call, tokens) from None
        outcome, retry_after, used, quotas = Outcome.OTHER, None, None, None
        clock = asyncio.get_running_loop().time
        limit, begun, answers = self._timeout.seconds, clock(), self._timeout.answers
        try:
            async with asyncio.timeout(timeout(deadline, limit)):
                answer = await self._inner.complete(call, deadline)
            outcome, quotas = Outcome.ANSWERED, answer.quotas
            if answer.counts is not None:
                used = answer.counts.prompt + answer.counts.completion
                weight = 0.1 if self._usual_tokens else 1.0
                self._usual_tokens += weight * (used - self._usual_tokens)
            self._timeout.answered(clock() - begun)
        except TimeoutError:
            if self._timeout.is_long(clock() - begun):
                outcome = Outcome.TIMED_OUT
            if deadline.remaining() <= 0:
                raise DeadlinePassedError(
                    f"no answer of provider {self.name!r} before the deadline"
                ) from None
            self._timeout.passed(answers)
            raise ProviderError(FailureKind.TRANSIENT, self.name, f"no answer within {limit:g} s") from None
        except ProviderError as fault:
            if fault.kind is FailureKind.RATE_LIMITED:
                outcome, retry_after, quotas = Outcome.RATE_LIMITED, fault.retry_after, fault.quotas
            raise
        finally:
            self.limiter.release(admission, outcome, retry_after=retry_after, tokens=used, quotas=quotas)
        return answer

    def _no_turn(self, call: Call, tokens: float) -> Exception:
        delay = self.limiter.delay(call.model, tokens)
        if delay <= 0:
            return DeadlinePassedError(f"no turn at provider {self.name!r} before the deadline")
        status = self.limiter.status_of(call.model).sentence(self.name)
        return ProviderError(FailureKind.RATE_LIMITED, self.name, status, retry_after=delay, settled=True)

    async def models(self) -> Sequence[str]:
        """Returns the names of the provider's models. One attempt is made."""
        limit = min(120.0, self._policy.attempt_timeout)
        try:
            async with asyncio.timeout(limit):
                return await self._inner.models()
        except TimeoutError:
            raise ProviderError(FailureKind.TRANSIENT, self.name, f"no answer within {limit:g} s") from None

    async def close(self) -> None:
        await self._inner.close()
