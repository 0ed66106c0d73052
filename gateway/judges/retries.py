"""The retries of calls to a judge."""

from __future__ import annotations

import random

from dramaturg.service.errors import ServiceError
from gateway.settings import RetryTable

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
