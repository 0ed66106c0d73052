"""Decides how a run ends, and when its first samples pause it."""

from __future__ import annotations

from typing import NamedTuple

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_CALL_REJECTED,
    ABSTAIN_REASON_JUDGE_UNAVAILABLE,
    ABSTAIN_REASON_NOT_APPLICABLE,
    ABSTAIN_REASON_NOT_SUPPORTED,
    ABSTAIN_REASON_PROVIDER_UNAVAILABLE,
)
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunOutcome, RunPolicy, RunSample, RunState
from dramaturg.results.abstentions import abstention_words, judgement_reasons
from dramaturg.results.coverage import DEFAULT_MIN_COVERAGE, describe_unjudged, failure_name
from dramaturg.results.names import reason_name
from gateway.runs.engine import policy
from gateway.runs.records import Counts

DEFAULT_FAIL_FAST_SAMPLES = 3
"""Of RunPolicy.fail_fast_sample_count."""

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
_NOT_ASKED = frozenset({ABSTAIN_REASON_NOT_SUPPORTED, ABSTAIN_REASON_NOT_APPLICABLE})
_MAX_WORDS = 300


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
        words: The error of a failed sample or the rationale of an abstention, to be quoted.
    """
    exceeded = policy.too_many_failed(given, counts) or policy.too_many_abstained(given, counts)
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
    else:
        return Conclusion(run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_OUTCOME_JUDGED, "")
    reason = f"{said}: {_unjudged(counts)}"
    return Conclusion(state, outcome, f"{reason}. {words}" if words else reason)


def conclude_early(given: RunPolicy, counts: Counts) -> Conclusion | None:
    """Returns the end of a run in which more samples failed than its policy allows. None: it goes on."""
    exceeded = policy.too_many_failed(given, counts)
    if not exceeded:
        return None
    reason = f"{exceeded}: {_unjudged(counts)}"
    return Conclusion(run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_POLICY_EXCEEDED, reason)


def words_of(sample: RunSample | None) -> str:
    """Returns the error of a failed sample, or the words of the first abstention of a result, in one line."""
    if sample is None:
        return ""
    words = sample.error.message or abstention_words(sample)
    line = " ".join(words.split())
    return line if len(line) <= _MAX_WORDS else f"{line[:_MAX_WORDS]}..."


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
    reasons = {found.reason for found in judgement_reasons(sample)} - _NOT_ASKED
    if not reasons or reasons - _UNCALLABLE:
        return ""
    return reason_name(max(reasons))


def _unjudged(counts: Counts) -> str:
    return describe_unjudged(
        counts.samples, counts.judgements, counts.abstentions_by_reason, counts.failures_by_reason
    )
