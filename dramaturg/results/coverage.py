"""The share of the judgements asked for that were made."""

from __future__ import annotations

from collections.abc import Mapping

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.error_status_pb2 import StatusCode
from dramaturg.api.evaluation.v1.run_pb2 import SampleError
from dramaturg.results.abstentions import NOT_ASKED, judged_share
from dramaturg.service.errors import ServiceError

DEFAULT_MIN_COVERAGE = 0.9
"""The coverage under which an evaluation is partial by default (``RunPolicy.min_coverage``)."""


def coverage(succeeded: int, done: int, judgements: int, abstentions: Mapping[str, int]) -> float | None:
    """Returns the share of samples with a result times the share of their judgements that do not abstain.

    Args:
        succeeded: The samples with a result.
        done: The samples with a result or a failure.
        judgements: The judgements, abstentions included.
        abstentions: The abstentions by reason. Those in ``NOT_ASKED`` count as not asked for.

    Returns:
        The coverage, from 0 to 1: 0 if every judgement abstains, for any reason. None: no sample is done.
    """
    if not done:
        return None
    judged = judgements - sum(abstentions.values())
    return judged_share(judged, judgements, abstentions) * succeeded / done


def status_name(code: StatusCode.ValueType) -> str:
    """The name of a status without its prefix. UNKNOWN: it is not stated."""
    known = StatusCode.DESCRIPTOR.values_by_number.get(code) if code else None
    return "UNKNOWN" if known is None else str(known.name).removeprefix("STATUS_CODE_")


def failure_name(error: SampleError | ServiceError) -> str:
    """Returns the reason of a failed sample without the prefix of ErrorReason, else its status."""
    known = ErrorReason.DESCRIPTOR.values_by_number.get(error.reason) if error.reason else None
    if known is None:
        return error.code.name if isinstance(error, ServiceError) else status_name(error.code)
    return str(known.name).removeprefix("ERROR_REASON_")


def describe_unjudged(
    samples: int, judgements: int, abstentions: Mapping[str, int], failures: Mapping[str, int]
) -> str:
    """Returns abstentions and failures with their counts by reason, as text. Empty: there are none.

    Abstentions in ``NOT_ASKED`` stand apart, since ``coverage`` does not count them.
    """
    parts = []
    not_asked = {reason: count for reason, count in abstentions.items() if reason in NOT_ASKED}
    counted = {reason: count for reason, count in abstentions.items() if reason not in NOT_ASKED}
    asked = judgements - sum(not_asked.values())
    if count := sum(counted.values()):
        parts.append(f"{count} of {asked} judgements abstained ({by_reason(counted)})")
    if count := sum(not_asked.values()):
        parts.append(f"{count} judgements do not count as asked for ({by_reason(not_asked)})")
    if count := sum(failures.values()):
        parts.append(f"{count} of {samples} samples failed ({by_reason(failures)})")
    return "; ".join(parts)


def by_reason(counts: Mapping[str, int]) -> str:
    """Counts as text, the largest first, for example "TIMED_OUT 3, REFUSED 1"."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in ordered)
