"""What the policy and the limits of a run mean: attempts of its samples, and what pauses or ends the run."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_CALL_REJECTED,
    ABSTAIN_REASON_JUDGE_UNAVAILABLE,
    ABSTAIN_REASON_PROVIDER_UNAVAILABLE,
)
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunLimits, RunOutcome, RunPolicy, RunSample, RunState
from dramaturg.results.coverage import (
    DEFAULT_MIN_COVERAGE,
    NOT_ASKED,
    abstention_words,
    describe_unjudged,
    failure_name,
    judgement_reasons,
)
from dramaturg.results.gold_answers import too_many_missing
from dramaturg.results.names import reason_name
from gateway.evaluations.kinds import result_kind
from gateway.evaluations.scope import SeenIdentity
from gateway.runs.records import Counts, Incident, RunRecord, SeenJudge

logger = logging.getLogger(__name__)

MIN_BATCH_SIZE = 25
"""The samples of a batch while the throughput is unknown, unless the slots of a gateway hold more."""
MAX_BATCH_SIZE = 500
"""The most samples of a batch, unless they could not fill the slots."""
BATCH_SECONDS = 5.0
"""The duration a batch is sized for: long against the polling of the queue, short against a restart."""
BATCHES_PER_GATEWAY = 2
"""The most batches of one run that one of several gateways works on at once. They share slots, so that the
slowest sample of one leaves none idle; with more, the first gateway to poll would take them all."""
BATCHES_IN_FLIGHT_PER_GATEWAY = 3
"""The most batches of one run in flight for each gateway: one waits beyond those worked on."""

_WINDOW_SECONDS = 10.0


class ThroughputMeter:
    """Measures completed samples per second over the last ten seconds."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def record(self, done: int) -> None:
        """Records the number of samples done so far."""
        now = time.monotonic()
        self._marks.append((now, done))
        while now - self._marks[0][0] > _WINDOW_SECONDS:
            self._marks.popleft()

    def rate(self) -> float | None:
        """Samples per second; None while unknown."""
        (first, before), (last, after) = self._marks[0], self._marks[-1]
        return (after - before) / (last - first) if last - first >= 1 and after > before else None


def batch_size(rate: float | None, slots: int, gateways: int) -> int:
    """The number of samples of a batch.

    Args:
        rate: Samples of the run per second, over all gateways. None: unknown.
        slots: The samples of the run evaluated at once, over all gateways.
        gateways: The number of gateways, at least 1.
    """
    share = math.ceil(slots / gateways)
    fewest = math.ceil(share / BATCHES_PER_GATEWAY)
    wanted = max(MIN_BATCH_SIZE, share) if rate is None else math.ceil(rate / gateways * BATCH_SECONDS)
    return max(fewest, min(MAX_BATCH_SIZE, wanted))


def max_batches_in_flight(slots: int, gateways: int) -> int:
    """The number of batches of a run in flight: with fewer slots than gateways one for each slot.

    Args:
        slots: The samples of the run evaluated at once, over all gateways.
        gateways: The number of gateways, at least 1.
    """
    return slots if slots < gateways else gateways * BATCHES_IN_FLIGHT_PER_GATEWAY


def slots_of(rank: int, gateways: int, slots: int) -> int:
    """The samples of a run that one gateway evaluates at once.

    Args:
        rank: The position of the gateway among all, from 0.
        gateways: The number of gateways.
        slots: The samples of the run evaluated at once, over all gateways.
    """
    each, rest = divmod(slots, gateways)
    # With fewer slots than gateways, only as many gateways get a batch as there are slots.
    return max(1, each + (1 if rank < rest else 0))


DEFAULT_CONCURRENT_SAMPLES = 16
"""Of RunLimits.max_concurrent_samples."""
DEFAULT_ATTEMPTS = 3
"""Of RunPolicy.sample_attempt_count."""
DEFAULT_SAMPLE_SECONDS = 600.0
"""Of RunPolicy.sample_timeout."""
DEFAULT_FAIL_FAST_SAMPLES = 3
"""Of RunPolicy.fail_fast_sample_count."""

FIRST_DELAY_SECONDS = 1.0
"""The delay after the first failure outside the samples; doubled with each one."""
MAX_DELAY_SECONDS = 30.0

Note = Callable[[SeenJudge], Awaitable[Sequence[SeenJudge]]]
"""Records an identity in the run; returns the judge's other identities in the run, if this one is new."""

_PERMANENT = frozenset(
    {
        error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN,
        error_reason_pb2.ERROR_REASON_ROLE_UNBOUND,
        error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
        error_reason_pb2.ERROR_REASON_PROVIDER_REJECTED,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED,
        error_reason_pb2.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_PROVIDER_ADDRESS_INVALID,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE,
        error_reason_pb2.ERROR_REASON_COMPLETION_NOT_RECORDED,
        error_reason_pb2.ERROR_REASON_WEIGHTS_MISSING,
        error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED,
        error_reason_pb2.ERROR_REASON_PERMISSION_DENIED,
    }
)
"""Reasons for which a sample fails again however often it is evaluated. PROVIDER_UNAVAILABLE is one of them
once the attempts of a sample are used up."""
_UNCALLABLE = frozenset(
    {
        ABSTAIN_REASON_JUDGE_UNAVAILABLE,
        ABSTAIN_REASON_CALL_REJECTED,
        ABSTAIN_REASON_PROVIDER_UNAVAILABLE,
    }
)
"""Abstentions without a judge's answer, after the attempts of a sample."""
_MAX_WORDS = 300
_REACTIONS = (("fail", run_pb2.RUN_STATE_FAILED), ("pause", run_pb2.RUN_STATE_PAUSED))
"""What a run does when a judge changes, the severest first."""


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


DEFAULT_BATCH_SECONDS = 24 * 3600.0
"""Of BatchThenLive.deadline."""
LONGEST_PUT_OFF = 15
"""The most by which the first wait of a sample for a batch grows."""


def batch_until(run: RunRecord) -> float | None:
    """Until when model calls of a run may wait for batches, in seconds since 1970. None: they are live."""
    if not run.spec.HasField("batch_then_live"):
        return None
    lane = run.spec.batch_then_live
    seconds = lane.deadline.ToNanoseconds() / 1e9 if lane.HasField("deadline") else DEFAULT_BATCH_SECONDS
    return run.create_time.timestamp() + seconds


def put_off_seconds(waits: int, left: float, first: float) -> float:
    """The seconds until a sample that waits for a batch is evaluated again.

    Args:
        waits: How often in a row it was found waiting, this time included.
        left: The seconds until its calls are made live; negative while a cancelled batch is waited for.
        first: The wait of the first time. It doubles with each further one.
    """
    wait = first * min(2 ** min(waits - 1, 16), LONGEST_PUT_OFF)
    return min(wait, left) if left > 0 else first / 4


class Conclusion(NamedTuple):
    """The end of a run."""

    state: RunState.ValueType
    outcome: RunOutcome.ValueType
    reason: str
    """The reason as text. Empty: none is needed."""


def conclude(given: RunPolicy, counts: Counts, words: str = "") -> Conclusion:
    """Returns the end of a run whose samples are all done.

    Args:
        given: The policy of the run.
        counts: The progress of the run.
        words: The error of a failed sample, the rationale of an abstention or the failure of a gold answer,
            to be quoted.
    """
    exceeded = too_many_failed(given, counts) or too_many_abstained(given, counts)
    coverage = counts.coverage or 0.0
    least = given.min_coverage if given.HasField("min_coverage") else DEFAULT_MIN_COVERAGE
    if counts.done and not coverage:
        state, outcome = run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_NOTHING_JUDGED
        said = "nothing was judged"
    elif exceeded:
        state, outcome = run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_POLICY_EXCEEDED
        said = exceeded
    elif coverage < least:
        state, outcome = run_pb2.RUN_STATE_PARTIAL, run_pb2.RUN_OUTCOME_LOW_COVERAGE
        said = f"the coverage is {coverage:.3g}; the policy asks for {least:.3g}"
    elif missing := _too_many_missing(given, counts):
        reason = f"{missing}. {words}" if words else missing
        return Conclusion(run_pb2.RUN_STATE_PARTIAL, run_pb2.RUN_OUTCOME_GOLD_ANSWERS_MISSING, reason)
    else:
        return Conclusion(run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_OUTCOME_JUDGED, "")
    reason = f"{said}: {_unjudged(counts)}"
    return Conclusion(state, outcome, f"{reason}. {words}" if words else reason)


def conclude_early(given: RunPolicy, counts: Counts) -> Conclusion | None:
    """Returns the end of a run in which more samples failed than its policy allows. None: it goes on."""
    exceeded = too_many_failed(given, counts)
    if not exceeded:
        return None
    reason = f"{exceeded}: {_unjudged(counts)}"
    return Conclusion(run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_POLICY_EXCEEDED, reason)


def words_of(sample: RunSample | None, *, gold_answer: bool = False) -> str:
    """Returns the error of a failed sample, or why a result has an abstention, in one line.

    Args:
        sample: The sample. None: there are no words.
        gold_answer: Whether the words are those of its missing gold answer instead.
    """
    if sample is None:
        return ""
    failure = sample.scripts.gold_answer.failure
    words = failure if gold_answer else sample.error.message or abstention_words(sample)
    if not words and (kind := result_kind(sample)) is not None:
        words = kind.results.unscored(getattr(sample, kind.results.name))
    line = " ".join(words.split())
    return line if len(line) <= _MAX_WORDS else f"{line[:_MAX_WORDS]}..."


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


def _too_many_missing(policy: RunPolicy, counts: Counts) -> str:
    """Why missing gold answers make a run partial whose samples are all done. Empty: they do not."""
    limited = policy.HasField("max_missing_gold_answer_fraction")
    most = policy.max_missing_gold_answer_fraction if limited else None
    return too_many_missing(counts.gold_answers, most)


def _unexpected(by_reason: Mapping[str, int]) -> int:
    return sum(count for reason, count in by_reason.items() if reason not in NOT_ASKED)


class FailFast:
    """Detects first samples that all fail for the same permanent reason.

    Args:
        given: The policy of the run.
        counts: The progress at the start.
    """

    def __init__(self, given: RunPolicy, counts: Counts) -> None:
        chosen = given.HasField("fail_fast_sample_count")
        self._least = given.fail_fast_sample_count if chosen else DEFAULT_FAIL_FAST_SAMPLES
        self._open = bool(self._least) and not counts.judged
        self._reason = ""
        self._count = 0

    def record(self, sample: RunSample) -> str:
        """Records a finished sample; returns why the run is paused, or an empty text."""
        if not self._open:
            return ""
        reason = permanent_reason(sample)
        if not reason or (self._reason and reason != self._reason):
            self._open = False
            return ""
        self._reason = reason
        self._count += 1
        if self._count < self._least:
            return ""
        self._open = False
        what = "sample" if self._count == 1 else f"{self._count} samples"
        return (
            f"the first {what} failed for the same reason ({reason}), so no other is started until the "
            f"run is resumed. {words_of(sample)}"
        )


def permanent_reason(sample: RunSample) -> str:
    """Returns why no attempt at a sample brings a judgement. Empty: it brought one, or another may."""
    if sample.state == run_pb2.SAMPLE_STATE_FAILED:
        permanent = ErrorReason.ValueType(sample.error.reason) in _PERMANENT
        return failure_name(sample.error) if permanent else ""
    found = {one.reason for one in judgement_reasons(sample)}
    reasons = {reason for reason in found if reason_name(reason) not in NOT_ASKED}
    if not reasons or reasons - _UNCALLABLE:
        return ""
    return reason_name(max(reasons))


def _unjudged(counts: Counts) -> str:
    return describe_unjudged(
        counts.samples, counts.judgements, counts.abstentions_by_reason, counts.failures_by_reason
    )


class _Change(NamedTuple):
    seen: SeenIdentity
    reason: str


class JudgeWatch:
    """Compares the identities of the judges of a run with the expected and the earlier ones.

    A version that is not the expected one is reported for each sample. A change of the identity is reported
    once, when the store records the new one, so that a resumed run goes on with the judge as it is. A change
    within an expected range is logged alone: the range states which versions are interchangeable.

    Args:
        run_id: The run.
        note: Records an identity.
    """

    def __init__(self, run_id: str, note: Note) -> None:
        self._run_id = run_id
        self._note = note
        self._known: set[SeenIdentity] = set()

    async def record(self, identities: Iterable[SeenIdentity]) -> Conclusion | None:
        """Records the identities of the judges of a sample; returns the reaction of the run, or None."""
        changes = [change for seen in sorted(identities) if (change := await self._compare(seen))]
        for reaction, state in _REACTIONS:
            for change in changes:
                if change.seen.reaction == reaction:
                    return Conclusion(state, run_pb2.RUN_OUTCOME_JUDGE_CHANGED, change.reason)
        return None

    async def _compare(self, seen: SeenIdentity) -> _Change | None:
        judge = f"the judge {seen.judge!r} of {seen.role}"
        change = _Change(seen, f"{judge} {seen.deviation}") if seen.deviation else None
        if seen in self._known:
            return change
        others = await self._note(SeenJudge(seen.role, seen.judge, seen.name, seen.version))
        self._known.add(seen)
        if not others:
            return change
        before = others[-1]
        reason = (
            f"{judge} changed during the run: it was {before.name} {before.version} and is "
            f"{seen.name} {seen.version}"
        )
        logger.warning("%s", reason, extra={"fields": {"run": self._run_id, "policy": seen.reaction}})
        if change is None and seen.expected and before.name == seen.name:
            return None
        return change or _Change(seen, reason)


def waits_for_judge(conclusion: Conclusion, identities: Iterable[SeenIdentity]) -> bool:
    """Whether the run is paused and a judge was not called for a sample because of its version.

    Such a sample stays pending: the resumed run evaluates it again.
    """
    return conclusion.state == run_pb2.RUN_STATE_PAUSED and any(
        seen.deviation and seen.reaction == "pause" for seen in identities
    )


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
