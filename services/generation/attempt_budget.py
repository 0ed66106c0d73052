"""The budget of failed attempts of a request, over all calls that are made for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dramaturg.service import context

MAX_REQUESTS = 10_000
"""The number of requests that are remembered; the least recent is forgotten first."""


@dataclass(slots=True)
class RequestAttempts:
    """The attempts of all calls of one request."""

    failed: int = 0
    """Attempts that ended in a transient failure."""
    answered: int = 0
    in_flight: int = 0
    words: str = ""
    """The last failure."""

    def fail(self, fault: Exception) -> None:
        """Records an attempt that ended in a transient failure."""
        self.failed += 1
        self.words = str(fault)


class AttemptBudget:
    """Bounds the failed attempts of all calls with one request id.

    Judges, repeated requests and repeated samples of a run carry the request id of the sample, so that the
    budget holds over all layers that retry. Every two answers allow one more failure, since a sample with
    many calls has more of them.

    Args:
        failures: The failed attempts of a request without an answer.
    """

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self._requests: OrderedDict[str, RequestAttempts] = OrderedDict()

    def current(self) -> RequestAttempts:
        """The attempts of the request that is being served; new ones outside of any."""
        request = context.current()
        if request is None or not request.request_id:
            return RequestAttempts()
        found = self._requests.setdefault(request.request_id, RequestAttempts())
        self._requests.move_to_end(request.request_id)
        if len(self._requests) > MAX_REQUESTS:
            self._requests.popitem(last=False)
        return found

    def is_exhausted(self, request: RequestAttempts) -> bool:
        """Whether a request may begin no further attempt."""
        # Until the first answer every attempt in progress may fail.
        pending = 0 if request.answered else request.in_flight
        return request.failed > 0 and request.failed + pending >= self._failures + request.answered // 2

    @contextmanager
    def attempt(self, request: RequestAttempts) -> Iterator[None]:
        """Counts an attempt while it is in progress."""
        request.in_flight += 1
        try:
            yield
        finally:
            request.in_flight -= 1
