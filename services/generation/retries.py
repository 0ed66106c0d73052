"""Retries of provider calls: retried failures, waits, time limits and the budget of failed attempts.

No other module retries calls to providers. A circuit breaker stops calls to models that only fail.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from dramaturg.service import context
from dramaturg.service.auth import caller
from services.generation.calls import (
    Answer,
    Call,
    Deadline,
    DeadlinePassedError,
    FailureKind,
    Message,
    ProviderError,
    timeout,
)
from services.generation.ledger import Ledger
from services.generation.limits.limiter import CallLimiter, Outcome
from services.generation.metrics import RETRIES
from services.generation.providers.base import Provider
from services.generation.records import fingerprint

Key = TypeVar("Key")
Value = TypeVar("Value")

PROOF_SECONDS = 5.0
"""A model without a failure for this time counts as working."""
MAX_ENTRIES = 10_000
"""The number of models, and of circuits, that are remembered; the least recent is forgotten first."""
MAX_REQUESTS = 10_000
"""The number of requests that are remembered; the least recent is forgotten first."""
IDLE_SECONDS = 600.0
"""The time without an attempt after which calls with a request id are a new request. Retries of one request
wait less: a judge or a run by one minute at most, and for an outage by two."""


@dataclass(slots=True)
class _Circuit:
    """The failures in a row of one tenant's calls to one model."""

    failures: int = 0
    failed_at: float = -math.inf
    words: str = ""
    """The last failure. It may quote a request of the tenant, so no other tenant is shown it."""
    wait: float = 0.0
    closed_until: float = -math.inf
    is_open: bool = False


class CircuitBreaker:
    """Stops a tenant's calls to a model of a provider that only fails; single calls then probe it.

    Failures may be caused by what a tenant asks, so a tenant's failures stop its own calls alone. An answer
    to any tenant shows that the model works.

    Args:
        provider: The name of the provider.
        longest: The maximum time between two probes, in seconds.
    """

    FAILURES = 8
    """The consecutive failures that stop calls, and the maximum of attempts at once before a success. Calls
    to a model that worked within the last ``PROOF_SECONDS`` are not stopped."""

    def __init__(self, provider: str, longest: float) -> None:
        self._provider = provider
        self._longest = longest
        self._worked: OrderedDict[str, float] = OrderedDict()
        """When each model last worked."""
        self._circuits: OrderedDict[tuple[str, str], _Circuit] = OrderedDict()
        """By model and tenant."""

    @property
    def has_worked(self) -> bool:
        """Whether the provider ever answered."""
        return bool(self._worked)

    def is_open(self, model: str, tenant: str) -> bool:
        """Whether a tenant's calls to a model are currently stopped."""
        circuit = self._circuit(model, tenant)
        return circuit is not None and circuit.is_open

    def check(self, model: str, tenant: str, now: float) -> None:
        """Admits a call, as a probe where calls are stopped.

        Raises:
            ProviderError: Calls are stopped; the message is that of the tenant's last failure.
        """
        circuit = self._circuit(model, tenant)
        if circuit is None or not circuit.is_open:
            return
        left = circuit.closed_until - now
        if left > 0:
            raise ProviderError(
                FailureKind.TRANSIENT,
                self._provider,
                f"{circuit.words} ({circuit.failures} attempts in a row failed, the next in {left:.0f} s)",
                retry_after=left,
                settled=True,
            )
        circuit.closed_until = now + max(circuit.wait, 1.0)  # until this probe is answered

    def failed(self, model: str, tenant: str, fault: ProviderError, now: float, begun: float) -> None:
        """Records a transient failure of an attempt.

        Args:
            model: The model.
            tenant: The tenant of the call.
            fault: The failure.
            now: When it came.
            begun: When the attempt began. If another succeeded since, the model works: the failure does not
                count.
        """
        worked_at = self._worked.get(model, -math.inf)
        if begun < worked_at:
            return
        circuit = self._circuit(model, tenant) or _Circuit()
        _remember(self._circuits, (model, tenant), circuit)
        circuit.failures += 1
        circuit.failed_at, circuit.words = now, str(fault)
        circuit.is_open = circuit.failures >= self.FAILURES and now - worked_at >= PROOF_SECONDS
        if circuit.is_open:
            circuit.wait = min(self._longest, 2 * circuit.wait or 5.0)
            circuit.closed_until = now + circuit.wait

    def worked(self, model: str, now: float) -> None:
        """Records a response that is no failure of the provider. It ends the stops of all tenants."""
        _remember(self._worked, model, now)

    def _circuit(self, model: str, tenant: str) -> _Circuit | None:
        circuit = self._circuits.get((model, tenant))
        if circuit is not None and circuit.failed_at <= self._worked.get(model, -math.inf):
            del self._circuits[model, tenant]
            return None
        return circuit


def _remember(entries: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > MAX_ENTRIES:
        entries.popitem(last=False)


@dataclass(slots=True)
class RequestAttempts:
    """The attempts of all calls of one request."""

    failed: int = 0
    """Attempts that ended in a transient failure."""
    words: str = ""
    """The last of these failures. It may quote the request, so no other request is shown it."""
    answered: int = 0
    in_flight: int = 0
    calls: int = 0
    """Calls in progress."""
    attempted_at: float = -math.inf
    """When an attempt last ended."""
    is_bounded: bool = True
    """False outside of any request: the limits of the call alone hold."""

    def __enter__(self) -> Self:
        self.calls += 1
        return self

    def __exit__(self, *raised: object) -> None:
        self.calls -= 1


class AttemptBudget:
    """Bounds the failed attempts of all calls of a tenant with one request id.

    Judges, repeated requests and repeated attempts at a sample of a run carry the request id of the
    sample, so that the budget holds over all layers that retry. Every two answers allow one more failure,
    since a sample with many calls has more of them.

    Args:
        failures: The failed attempts of a request without an answer.
        clock: The time, in seconds.

    Attributes:
        failures: The same, which may change.
    """

    def __init__(self, failures: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures = failures
        self._clock = clock
        self._requests: OrderedDict[tuple[str, str], RequestAttempts] = OrderedDict()

    def request(self) -> RequestAttempts:
        """The attempts of the request that is served, entered for each call; new ones outside of any."""
        served = context.current()
        if served is None or not served.request_id:
            return RequestAttempts(is_bounded=False)
        key = caller.current().tenant, served.request_id
        attempts = self._requests.get(key)
        if attempts is None or self._is_over(attempts):
            attempts = self._requests[key] = RequestAttempts(attempted_at=self._clock())
        self._requests.move_to_end(key)
        while len(self._requests) > MAX_REQUESTS or self._is_over(next(iter(self._requests.values()))):
            self._requests.popitem(last=False)
        return attempts

    def _is_over(self, attempts: RequestAttempts) -> bool:
        return not attempts.calls and self._clock() - attempts.attempted_at > IDLE_SECONDS

    def is_exhausted(self, request: RequestAttempts) -> bool:
        """Whether a request may begin no further attempt."""
        # Until the first answer every attempt in progress may fail.
        pending = 0 if request.answered else request.in_flight
        return (
            request.is_bounded
            and request.failed > 0
            and request.failed + pending >= self.failures + request.answered // 2
        )

    def ended(self, request: RequestAttempts) -> None:
        """Records the end of an attempt in flight."""
        request.in_flight -= 1
        request.attempted_at = self._clock()


_SHORTEST_SECONDS = 0.25
"""No shorter limit is learned: a busy machine delays answers for as long."""


class AttemptTimeout:
    """The time limit of the next attempt: a multiple of the longest of the latest answers.

    A call that takes far longer than all others is taken to hang. The configured limit applies until enough
    answers are known, and is the maximum. A limit that passes without an
    answer, to this call or another, is doubled, up to eightfold.
    """

    _ENOUGH = 20

    def __init__(self, configured: float) -> None:
        self._configured = configured
        self._factor = 1
        self.answers = 0
        self._latest: deque[float] = deque(maxlen=50)

    @property
    def seconds(self) -> float:
        most = self._configured * self._factor
        if len(self._latest) < self._ENOUGH:
            return most
        return min(most, max(self._configured / 10, 4 * max(self._latest), _SHORTEST_SECONDS))

    def answered(self, seconds: float) -> None:
        """Records the duration of an answer."""
        self._latest.append(seconds)
        self.answers += 1

    def passed(self, answers: int) -> None:
        """Takes that a limit passed without an answer.

        Args:
            answers: How many answers there were when the attempt began. With more, it alone hangs:
                the configured limit applies, not more.
        """
        if self.answers == answers:
            self._factor = min(8, 2 * self._factor)
        self._latest.clear()

    def is_long(self, seconds: float) -> bool:
        """Whether an attempt of this duration without an answer counts as a failure of the provider."""
        return seconds >= self._configured / 10


logger = logging.getLogger(__name__)


UNREACHABLE_ATTEMPTS = 3
"""The maximum number of attempts of a call to a provider that was never reached."""
_SERVER_ERROR = 500
"""From this HTTP status on a response does not show that the model works, regardless of its words."""
_CHARACTERS_OF_TOKEN = 4
"""About as many characters of English are one token."""
_TOKENS_OF_IMAGE = 1_500
"""About as many tokens are an image."""


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


@dataclass(slots=True)
class _Attempts:
    """The attempts at one call."""

    request: RequestAttempts
    """Those of all calls of its request."""
    tenant: str
    retried: int = 0
    transient: int = 0
    """Attempts that ended in a transient failure."""
    failures_in_row: int = 0
    """The failures by which the next wait is measured. Refusals at random count by those of the model, not of
    the call: while others are accepted, it waits shortly. Other refusals count as 0: the limiter waits."""

    def failed(self, fault: ProviderError) -> None:
        """Counts a transient failure."""
        self.request.failed += 1
        self.request.words = str(fault)
        self.transient += 1
        self.failures_in_row = self.transient


class RetryingProvider(Provider):
    """A provider with a limiter and retries, whose attempts are recorded in the ledger before they are sent.

    Waits after transient failures: exponential backoff with full jitter (Brooker, "Exponential Backoff And
    Jitter", AWS Architecture Blog, 2015). A wait that the provider asks for is never shortened. Time in the
    queue does not count as time of an attempt.

    An answer carries the number of its record, which remains until the answer is stored or settled (see
    ``Ledger``). A call that cannot be recorded is not sent.

    Args:
        inner: The provider.
        limiter: Bounds its calls.
        policy: The limits of retries.
        ledger: Where attempts are recorded. None: nowhere.
    """

    def __init__(
        self, inner: Provider, limiter: CallLimiter, policy: RetryPolicy, ledger: Ledger | None = None
    ) -> None:
        self._inner = inner
        self._ledger = ledger
        self.limiter = limiter
        self._policy = policy
        self._timeout = AttemptTimeout(policy.attempt_timeout)
        self._breaker = CircuitBreaker(inner.name, policy.longest_wait)
        self._budget = AttemptBudget(policy.request_failures)
        self.name = inner.name
        self.address = inner.address
        self.default_model = inner.default_model
        self.keeps = inner.keeps

    def divide(self, replicas: int) -> None:
        """Keeps to an equal part of the configured limits and of the failed attempts of a request.

        A call still has all of its own attempts.

        Args:
            replicas: The processes that share them, this one included.
        """
        self.limiter.divide(replicas)
        failures, least = self._policy.request_failures, self._policy.transient_attempts
        self._budget.failures = max(math.ceil(failures / replicas), min(failures, least))

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """Repeats the call until it is answered, fails permanently, or has no time for another attempt.

        Raises:
            ProviderError: The last failure.
            DeadlinePassedError: The deadline passed without an earlier failure.
            LedgerUnavailableError: The call cannot be recorded; nothing was sent.
        """
        with self._budget.request() as request:
            attempts = _Attempts(request, caller.current().tenant)
            fault: ProviderError | None = None
            while True:
                if self._budget.is_exhausted(request):
                    raise fault or self._refusal(request)
                request.in_flight += 1
                try:
                    answer = await self._attempt(call, deadline, attempts)
                except DeadlinePassedError:
                    if fault is not None:
                        raise fault from None
                    raise
                except ProviderError as failed:
                    fault = deadline.failure = failed
                else:
                    request.answered += 1
                    answer.retried += attempts.retried
                    return answer
                finally:
                    self._budget.ended(request)
                wait = (fault.retry_after or 0.0) + self._jitter(attempts.failures_in_row)
                unreachable = not fault.status and not self._breaker.has_worked
                most = UNREACHABLE_ATTEMPTS if unreachable else self._policy.transient_attempts
                exhausted = attempts.transient >= min(most, self._policy.transient_attempts) or (
                    fault.kind is FailureKind.TRANSIENT and self._breaker.is_open(call.model, attempts.tenant)
                )
                if exhausted or not fault.passes or wait >= deadline.remaining():
                    raise fault
                attempts.retried += 1
                RETRIES.add(self.name, fault.kind.value)
                logger.info(
                    "provider %s: %s; attempt %d in %.2f s",
                    self.name,
                    fault.kind.value,
                    attempts.retried + 1,
                    wait,
                )
                await asyncio.sleep(wait)

    def _refusal(self, request: RequestAttempts) -> ProviderError:
        said = f"{request.words} ({request.failed} attempts for this request failed; no other is made)"
        return ProviderError(FailureKind.TRANSIENT, self.name, said, settled=True)

    def _jitter(self, failures: int) -> float:
        if not failures:
            return 0.0
        ceiling = min(self._policy.longest_wait, self._policy.first_wait * 2.0 ** min(failures - 1, 32))
        return random.uniform(0.0, ceiling)  # noqa: S311 - jitter, not cryptography

    async def _attempt(self, call: Call, deadline: Deadline, attempts: _Attempts) -> Answer:
        first = attempts.retried > 0
        tokens = sum([len(message.quoted) for message in call.messages]) / _CHARACTERS_OF_TOKEN
        # Most messages have no parts, and every call comes by here.
        tokens += sum([_tokens_of_parts(message) for message in call.messages if message.parts])
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
        try:
            self._breaker.check(call.model, attempts.tenant, clock())
        except ProviderError:
            self.limiter.release(admission, outcome)
            raise
        limit, begun, answers = self._timeout.seconds, clock(), self._timeout.answers
        try:
            async with asyncio.timeout(timeout(deadline, limit)):
                answer = await self._send(call, deadline)
            outcome, quotas = Outcome.ANSWERED, answer.quotas
            if answer.counts is not None:
                used = answer.counts.prompt + answer.counts.completion
            ended = clock()
            self._timeout.answered(ended - begun)
            self._breaker.worked(call.model, ended)
        except TimeoutError:
            if self._timeout.is_long(clock() - begun):
                outcome = Outcome.TIMED_OUT
            if deadline.remaining() <= 0:
                raise DeadlinePassedError(
                    f"no answer of provider {self.name!r} before the deadline"
                ) from None
            self._timeout.passed(answers)
            failure = ProviderError(FailureKind.TRANSIENT, self.name, f"no answer within {limit:g} s")
            self._breaker.failed(call.model, attempts.tenant, failure, clock(), begun)
            attempts.failed(failure)
            raise failure from None
        except ProviderError as fault:
            if fault.kind is FailureKind.RATE_LIMITED:
                outcome, retry_after, quotas = Outcome.RATE_LIMITED, fault.retry_after, fault.quotas
            if fault.kind is FailureKind.TRANSIENT:
                self._breaker.failed(call.model, attempts.tenant, fault, clock(), begun)
                attempts.failed(fault)
            elif fault.kind is FailureKind.RATE_LIMITED or 0 < fault.status < _SERVER_ERROR:
                self._breaker.worked(call.model, clock())
            raise
        finally:
            self.limiter.release(admission, outcome, retry_after=retry_after, tokens=used, quotas=quotas)
            if outcome is Outcome.RATE_LIMITED:
                in_row = self.limiter.refused_in_row(call.model)
                attempts.failures_in_row = max(1, in_row) if admission.is_random else 0
        return answer

    async def _send(self, call: Call, deadline: Deadline) -> Answer:
        """Records a call and sends it.

        A failure by which the call was certainly not charged settles the record. After any other failure, a
        cancellation included, the call may have been paid for in vain.
        """
        if self._ledger is None:
            return await self._inner.complete(call, deadline)
        call_number = await self._ledger.record_call(fingerprint(call, self.address))
        try:
            answer = await self._inner.complete(call, deadline)
        except BaseException as error:
            if isinstance(error, ProviderError) and error.settled:
                self._ledger.settle([call_number])
            else:
                self._ledger.abandon([call_number])
            raise
        answer.call_number = call_number
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


def _tokens_of_parts(message: Message) -> float:
    characters = sum([len(one) for one in message.parts if isinstance(one, str)])
    return characters / _CHARACTERS_OF_TOKEN + _TOKENS_OF_IMAGE * len(message.images)
