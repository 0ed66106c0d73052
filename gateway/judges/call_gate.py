"""The calls to a judge: their limit, with fair shares for tenants; the queue of a shadow; and retries."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass

from dramaturg.service.errors import ServiceError
from dramaturg.service.threads import FairSemaphore, FairShare
from gateway.settings import RetryTable


@dataclass(eq=False, slots=True)
class _Line:
    """The calls of one tenant."""

    share: FairShare
    calls: int = 0
    """The number of running and waiting calls."""


class CallGate:
    """Limits the number of concurrent calls to a judge.

    A free slot goes to the tenant with the fewest running calls, round-robin among equals. Calls of one
    tenant are served in order of arrival. A tenant without running calls waits for at most one turn of every
    other tenant.

    An instance belongs to one event loop.

    Args:
        calls: The maximum of concurrent calls, at least 1.
    """

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._semaphore = FairSemaphore(calls)
        self._lines: dict[str, _Line] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a call is running or waiting."""
        return bool(self._lines)

    def call(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """Waits for a slot of a tenant and holds it within an ``async with`` block."""
        return _Call(self, tenant)

    def _forget(self, line: _Line) -> None:
        """Removes a call, and the tenant with its last one, to bound memory."""
        line.calls -= 1
        if not line.calls:
            self._semaphore.close_share(line.share)
            del self._lines[line.share.tenant]


class _Call:
    __slots__ = ("_gate", "_line", "_tenant")

    def __init__(self, gate: CallGate, tenant: str) -> None:
        self._gate = gate
        self._tenant = tenant

    async def __aenter__(self) -> None:
        gate = self._gate
        line = gate._lines.get(self._tenant)
        if line is None:
            share = gate._semaphore.open_share(self._tenant, gate._calls)
            line = gate._lines[self._tenant] = _Line(share)
        line.calls += 1
        try:
            await gate._semaphore.acquire(line.share)
        except BaseException:
            gate._forget(line)
            raise
        self._line = line

    async def __aexit__(self, *_: object) -> None:
        self._gate._semaphore.release(self._line.share)
        self._gate._forget(self._line)


class ShadowQueue:
    """Counts the candidates that wait for a shadow or are in its calls.

    Args:
        size: The most candidates.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = 0

    @contextmanager
    def hold(self, candidates: int) -> Iterator[bool]:
        """Holds places within a ``with`` block. Yields whether there are as many; else none is held."""
        fits = self._held + candidates <= self._size
        held = candidates if fits else 0
        self._held += held
        try:
            yield fits
        finally:
            self._held -= held


FIRST_WAIT_SECONDS = 0.2
"""The upper bound of the first wait; doubled with each attempt. Waits have full jitter."""
MAX_WAIT_SECONDS = 5.0
"""The largest upper bound, unless the judge asks for more."""
MAX_TOKENS = 10.0
"""The attempt budget of a judge. A failed attempt takes one token; calls are repeated while more than half
are left (gRFC A6)."""
TOKENS_PER_ANSWER = 0.1
"""The tokens that an answer returns."""


class JudgeRetries:
    """The retries of one judge.

    The attempt budget is that of all calls to the judge: while most of them fail, each is made once.

    Args:
        table: The attempts and the codes. None: a call is made once.
    """

    def __init__(self, table: RetryTable | None) -> None:
        self._attempts = 1 if table is None else table.attempts
        self._codes = frozenset() if table is None else frozenset(table.codes)
        self._tokens = MAX_TOKENS

    def record_answer(self) -> None:
        """Records a call without an error."""
        self._tokens = min(MAX_TOKENS, self._tokens + TOKENS_PER_ANSWER)

    def wait(self, attempt: int, error: ServiceError) -> float | None:
        """Records a failed attempt; returns the seconds to the next one. None: there is none.

        Args:
            attempt: The number of the attempt, from 1.
            error: Its error.
        """
        if error.code.name not in self._codes:
            return None
        self._tokens = max(0.0, self._tokens - 1)
        if attempt >= self._attempts or self._tokens <= MAX_TOKENS / 2:
            return None
        bound = min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
        return max(error.retry_after or 0.0, random.uniform(0, bound))  # noqa: S311
