"""A circuit breaker for providers that only fail."""

from __future__ import annotations

import math

from services.generation.errors import FailureKind, ProviderError

PROOF_SECONDS = 5.0
"""A provider without a failure for this time counts as working."""


class CircuitBreaker:
    """Stops calls to a provider that only fails; single calls then probe it.

    Args:
        longest: The maximum time between two probes, in seconds.
    """

    FAILURES = 8
    """The consecutive failures that stop calls, and the maximum of attempts at once before a success. Calls
    to a provider that worked within the last ``PROOF_SECONDS`` are not stopped."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._failures = 0
        self._wait = 0.0
        self._closed_until = 0.0
        self._worked_at = -math.inf
        self._reason = ""
        self.is_open = False
        """Whether calls are currently stopped."""

    @property
    def has_worked(self) -> bool:
        """Whether the provider ever answered."""
        return self._worked_at > -math.inf

    def check(self, provider: str, now: float) -> None:
        """Admits a call, as a probe where calls are stopped.

        Raises:
            ProviderError: Calls are stopped; the message is that of the last failure.
        """
        if not self.is_open:
            return
        left = self._closed_until - now
        if left > 0:
            raise ProviderError(
                FailureKind.TRANSIENT,
                provider,
                f"{self._reason} ({self._failures} attempts in a row failed, the next in {left:.0f} s)",
                retry_after=left,
                settled=True,
            )
        self._closed_until = now + max(self._wait, 1.0)  # until this probe is answered

    def failed(self, fault: ProviderError, now: float, begun: float) -> None:
        """Records a transient failure of an attempt.

        Args:
            fault: The failure.
            now: When it came.
            begun: When the attempt began. If another succeeded since, the provider works: the failure does
                not count.
        """
        if begun < self._worked_at:
            return
        self._failures += 1
        self._reason = str(fault)
        self.is_open = self._failures >= self.FAILURES and now - self._worked_at >= PROOF_SECONDS
        if self.is_open:
            self._wait = min(self._longest, 2 * self._wait or 5.0)
            self._closed_until = now + self._wait

    def worked(self, now: float) -> None:
        """Records any response that is not a transient failure."""
        self._failures, self._wait, self._worked_at, self.is_open = 0, 0.0, now, False
