"""Names of outcomes and of reasons for abstentions, as tables, JSON and exports show them."""

from __future__ import annotations

from typing import Any

from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, FindingKind, Outcome, Severity
from dramaturg.api.evaluation.v1.scripts_pb2 import ShadowMiss
from dramaturg.api.judging.v1.pair_judge_service_pb2 import Preference

UNSPECIFIED = "UNSPECIFIED"
"""The reason of an abstention that states none."""


def outcome_name(outcome: int) -> str:
    """The name of an Outcome without its prefix, e.g. "PASS"; empty for 0."""
    return _name(Outcome, outcome, "OUTCOME_")


def reason_name(abstain_reason: int) -> str:
    """The name of an AbstainReason without its prefix, e.g. "TIMED_OUT"; empty for 0.

    A number that this version does not define is shown as "REASON_<number>".
    """
    return _name(AbstainReason, abstain_reason, "ABSTAIN_REASON_")


def abstention_name(abstain_reason: int) -> str:
    """The reason of an abstention: ``reason_name``, or ``UNSPECIFIED`` for 0."""
    return reason_name(abstain_reason) or UNSPECIFIED


def finding_name(kind: int) -> str:
    """The name of a FindingKind without its prefix, e.g. "DUPLICATE_STEP"; empty for 0.

    A number that this version does not define is shown as "KIND_<number>".
    """
    return _name(FindingKind, kind, "FINDING_KIND_")


def severity_name(severity: int) -> str:
    """The name of a severity in lower case, e.g. "major"; empty where it is unspecified."""
    return _name(Severity, severity, "SEVERITY_").lower() if severity else ""


def shadow_miss_name(miss: int) -> str:
    """The name of a ShadowMiss without its prefix, e.g. "QUEUE_FULL"; empty for 0."""
    return _name(ShadowMiss, miss, "SHADOW_MISS_")


def preference_name(preference: int) -> str:
    """The name of a Preference without its prefix, e.g. "FIRST"; empty for 0."""
    return _name(Preference, preference, "PREFERENCE_")


def _name(enum: Any, number: int, prefix: str) -> str:
    if not number:
        return ""
    known = enum.DESCRIPTOR.values_by_number.get(number)
    return f"{prefix.split('_')[-2]}_{number}" if known is None else str(known.name).removeprefix(prefix)
