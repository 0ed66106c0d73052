"""The budget of failed attempts of a request, over all calls that are made for it."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dramaturg.service import context
from dramaturg.service.auth import caller

MAX_REQUESTS = 10_000
"""The number of requests that are remembered; the least recent is forgotten first."""
IDLE_SECONDS = 600.0
"""The time without an attempt after which calls with a request id are a new request. Retries of one request
wait less: a judge or a run by one minute at most, and for an outage by two."""


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


class AttemptBudget:
    """Bounds the failed attempts of all calls of a tenant with one request id.

    Judges, repeated requests and repeated attempts at a sample of a run carry the request id of the
    sample, so that the budget holds over all layers that retry. Every two answers allow one more failure,
    since a sample with many calls has more of them.

    Args:
        failures: The failed attempts of a request without an answer.
        clock: The time, in seconds.
    """

    def __init__(self, failures: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures = failures
        self._clock = clock
        self._requests: OrderedDict[tuple[str, str], RequestAttempts] = OrderedDict()

    @contextmanager
    def request(self) -> Iterator[RequestAttempts]:
        """The attempts of the request that is being served, for one call; new ones outside of any."""
        attempts = self._current()
        attempts.calls += 1
        try:
            yield attempts
        finally:
            attempts.calls -= 1

    def _current(self) -> RequestAttempts:
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
            and request.failed + pending >= self._failures + request.answered // 2
        )

    @contextmanager
    def attempt(self, request: RequestAttempts) -> Iterator[None]:
        """Counts an attempt while it is in progress."""
        request.in_flight += 1
        try:
            yield
        finally:
            request.in_flight -= 1
            request.attempted_at = self._clock()
