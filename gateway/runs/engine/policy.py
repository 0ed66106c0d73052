"""When a run may continue: allowed failures and abstentions, its usage, and runs without progress."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import RunLimits, RunPolicy
from dramaturg.judge.usage import add_usage, total_usage
from dramaturg.results.coverage import NOT_ASKED
from gateway.runs.records import Counts, Incident

DEFAULT_CONCURRENT_SAMPLES = 16
"""Of RunLimits.max_concurrent_samples."""
DEFAULT_ATTEMPTS = 3
"""Of RunPolicy.sample_attempt_count."""
DEFAULT_SAMPLE_SECONDS = 600.0
"""Of RunPolicy.sample_timeout."""

FIRST_DELAY_SECONDS = 1.0
"""The delay after the first failure outside the samples; doubled with each one."""
MAX_DELAY_SECONDS = 30.0


def concurrent_samples(limits: RunLimits) -> int:
    """The samples evaluated at once, over all gateways."""
    return limits.max_concurrent_samples or DEFAULT_CONCURRENT_SAMPLES


def sample_attempts(policy: RunPolicy) -> int:
    """The number of attempts of a sample."""
    return policy.sample_attempt_count or DEFAULT_ATTEMPTS


def sample_seconds(policy: RunPolicy) -> float:
    """The time limit of one attempt."""
    if not policy.HasField("sample_timeout"):
        return DEFAULT_SAMPLE_SECONDS
    return policy.sample_timeout.ToTimedelta().total_seconds() or DEFAULT_SAMPLE_SECONDS


def too_many_failed(policy: RunPolicy, counts: Counts) -> str:
    """Why the failed samples fail the run. Empty: they do not.

    Args:
        policy: The allowed failures.
        counts: The progress of a run whose dataset was read, so that an exceeded fraction stays exceeded.
    """
    failed, samples = counts.failed, counts.samples
    if policy.HasField("max_failed_count") and failed > policy.max_failed_count:
        return f"the policy allows {policy.max_failed_count} failed samples"
    if policy.HasField("max_failed_fraction") and failed > policy.max_failed_fraction * samples:
        allowed = f"{policy.max_failed_fraction:.4g}"
        return f"the policy allows {allowed} of all samples to fail"
    return ""


def too_many_abstained(policy: RunPolicy, counts: Counts) -> str:
    """Why the abstentions fail a run whose samples are all done. Empty: they do not."""
    if not policy.HasField("max_abstained_fraction"):
        return ""
    unexpected = _unexpected(counts.abstentions_by_reason)
    if unexpected <= policy.max_abstained_fraction * counts.judgements:
        return ""
    return f"the policy allows {policy.max_abstained_fraction:.4g} of all judgements to abstain"


def _unexpected(by_reason: Mapping[str, int]) -> int:
    return sum(count for reason, count in by_reason.items() if reason not in NOT_ASKED)


class UsageTracker:
    """The usage of a run: that of the store, and that of this process since.

    Usage written while the store is read counts twice until the next refresh, and is never omitted.

    Args:
        stored: The usage in the store.
    """

    def __init__(self, stored: Usage) -> None:
        self.total = stored
        """All known usage."""
        self._since: deque[Usage] = deque()
        self._held: list[Usage] = []
        self._written = 0

    def hold(self, usage: Usage) -> None:
        """Adds the usage of an evaluated sample that is written later, after others."""
        self._held.append(usage)
        self.total = add_usage(self.total, usage)

    def add(self, usage: Usage, held: Usage | None = None) -> None:
        """Adds the usage of a sample that is written next.

        Args:
            usage: The usage.
            held: The part of it that ``hold`` added. None: none. The rest counts from the next refresh.
        """
        self._since.append(usage)
        if held is not None:
            self._held.remove(held)
        else:
            self.total = add_usage(self.total, usage)

    def written(self, count: int) -> None:
        """Notes that the oldest ``count`` added usages were written."""
        self._written += count

    def mark(self) -> int:
        """A position to take before the store is read, for ``refresh``."""
        return self._written

    def refresh(self, stored: Usage, mark: int) -> None:
        """Replaces the stored usage by the one read after ``mark``."""
        for _ in range(mark):
            self._since.popleft()
        self._written -= mark
        self.total = add_usage(stored, total_usage([*self._since, *self._held]))


class StallDetector:
    """Detects runs without progress.

    A sample that cannot be evaluated fails alone. A batch or an orchestrator fails for an error outside the
    samples: a defect, or a gateway with a broken installation. Such an error may disappear, so the work is
    retried with growing delays until ``timeout_seconds`` passed without a completed sample.

    Args:
        timeout_seconds: How long a run may fail without progress.
        subject: What fails, for messages, for example "its batches fail".
    """

    def __init__(self, timeout_seconds: float, subject: str) -> None:
        self._timeout = timeout_seconds
        self._subject = subject
        self._done: int | None = None
        self.reset()

    def reset(self) -> None:
        """Forgets all failures."""
        self._began = 0.0
        self._delay = 0.0
        self._retry_at = 0.0
        self._error = ""

    def record(self, done: int, errors: Sequence[str]) -> None:
        """Records the state of a run.

        Args:
            done: The number of completed samples.
            errors: The failures since the last call.
        """
        now = time.monotonic()
        if done != self._done:
            self._done = done
            self.reset()
        if not errors:
            return
        if not self._error:
            self._began = now
        self._error = errors[-1]
        self._delay = min(MAX_DELAY_SECONDS, max(FIRST_DELAY_SECONDS, 2 * self._delay))
        self._retry_at = now + self._delay

    def delay(self) -> float:
        """Seconds until the next attempt is due; 0 if it is."""
        return max(0.0, self._retry_at - time.monotonic())

    def incident(self, failures: int) -> Incident:
        """The failures as an incident of the run.

        Args:
            failures: The number of failures since the last report.
        """
        lasted = time.monotonic() - self._began
        return Incident(f"{self._subject}: {self._error}", failures, lasted, self.delay())

    def reason(self) -> str:
        """Why the run has stalled. Empty: it has not."""
        if not self._error or time.monotonic() - self._began < self._timeout:
            return ""
        return (
            f"no sample completed in {self._timeout:g} s because {self._subject}: {self._error}. "
            "Its results are kept; rerun the missing samples"
        )
