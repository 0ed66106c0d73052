"""The judgements of any message, those that abstain, and the share of those asked for that were made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from google.protobuf.message import Message

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.error_status_pb2 import StatusCode
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_CALL_REJECTED
from dramaturg.api.evaluation.v1.run_pb2 import SampleError
from dramaturg.api.evaluation.v1.scripts_pb2 import ShadowAssessment
from dramaturg.api.evaluation.v1.shadows_pb2 import ShadowJudgement
from dramaturg.results.names import abstention_name
from dramaturg.service.errors import ServiceError

_SHADOWS = (ShadowAssessment.DESCRIPTOR, ShadowJudgement.DESCRIPTOR)
NOT_ASKED = frozenset({"NOT_SUPPORTED", "NOT_APPLICABLE"})
"""Abstentions for judgements that count as not asked for, as ``abstention_name`` names them."""
_WORDS = ("rationale", "explanation", "failure", "detail")


class JudgementReason(NamedTuple):
    """Why a judgement abstains."""

    reason: int
    """The AbstainReason; 0: the judgement does not abstain."""
    words: str
    """The reason as text. May be empty."""

    @property
    def is_asked(self) -> bool:
        """Whether the judgement counts as asked for."""
        return abstention_name(self.reason) not in NOT_ASKED


def judgement_reasons(message: Message) -> Iterator[JudgementReason]:
    """Yields one entry for each judgement of a result or of an event, at any depth.

    Judgements of shadows are part of no judgement.
    """
    fields = message.DESCRIPTOR.fields_by_name
    if "abstain_reason" in fields:
        words = next(
            (getattr(message, name) for name in _WORDS if name in fields and getattr(message, name)), ""
        )
        yield JudgementReason(message.abstain_reason, str(words))  # type: ignore[attr-defined]
    for field, value in message.ListFields():
        inner = field.message_type
        if inner is None or inner in _SHADOWS or inner.GetOptions().map_entry:
            continue
        for part in value if field.is_repeated else (value,):
            yield from judgement_reasons(part)


def judged_share(judged: int, judgements: int, abstentions: Mapping[str, int]) -> float:
    """Returns the share of the judgements asked for that have a value, from 0 to 1.

    Args:
        judged: The judgements with a value.
        judgements: All judgements.
        abstentions: The abstentions by reason. Those in ``NOT_ASKED`` count as not asked for.

    Returns:
        The share: 0 if nothing was asked for and all abstain, 1 if there are no judgements.
    """
    asked = judgements - sum(abstentions.get(reason, 0) for reason in NOT_ASKED)
    return judged / asked if asked else float(not judgements)


def explained_abstention(message: Message) -> JudgementReason | None:
    """Returns the abstention that says most about a result. None: none abstains, or none has words."""
    found = (one for one in judgement_reasons(message) if one.reason and one.words)
    # A rejected call says more than its consequences; what was not asked for explains no low coverage.
    return min(
        found, key=lambda one: (not one.is_asked, one.reason != ABSTAIN_REASON_CALL_REJECTED), default=None
    )


def abstention_words(message: Message) -> str:
    """Returns the words of ``explained_abstention``. Empty: there is none."""
    found = explained_abstention(message)
    return found.words if found else ""


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
