"""Names of outcomes and of reasons for abstentions, as tables, JSON and exports show them."""

from __future__ import annotations

from typing import Any

from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, FindingKind, Outcome, Severity
from dramaturg.api.evaluation.v1.scripts_pb2 import ShadowMiss
from dramaturg.api.judging.v1.pair_judge_service_pb2 import Preference

ALL = "all"
"""The name of a group that has every item."""
UNSPECIFIED = "UNSPECIFIED"
"""The reason of an abstention that states none."""


def value_name(enum: Any, number: int) -> str:
    """The name of an enum's value without the prefix of the enum, e.g. "RUNNING"; "UNSPECIFIED" for 0.

    A number that this version does not define follows the last word of the prefix, e.g. "STATE_99".
    """
    values = enum.DESCRIPTOR.values_by_number
    prefix = values[0].name.removesuffix(UNSPECIFIED)
    known = values.get(number)
    return f"{prefix.split('_')[-2]}_{number}" if known is None else str(known.name).removeprefix(prefix)


def stated_name(enum: Any, number: int) -> str:
    """``value_name``, but empty for 0."""
    return value_name(enum, number) if number else ""


def outcome_name(outcome: int) -> str:
    """The name of an Outcome without its prefix, e.g. "PASS"; empty for 0."""
    return stated_name(Outcome, outcome)


def reason_name(abstain_reason: int) -> str:
    """The name of an AbstainReason without its prefix, e.g. "TIMED_OUT"; empty for 0.

    A number that this version does not define is shown as "REASON_<number>".
    """
    return stated_name(AbstainReason, abstain_reason)


def abstention_name(abstain_reason: int) -> str:
    """The reason of an abstention: ``reason_name``, or ``UNSPECIFIED`` for 0."""
    return reason_name(abstain_reason) or UNSPECIFIED


def finding_name(kind: int) -> str:
    """The name of a FindingKind without its prefix, e.g. "DUPLICATE_STEP"; empty for 0.

    A number that this version does not define is shown as "KIND_<number>".
    """
    return stated_name(FindingKind, kind)


def severity_name(severity: int) -> str:
    """The name of a severity in lower case, e.g. "major"; empty where it is unspecified."""
    return stated_name(Severity, severity).lower()


def shadow_miss_name(miss: int) -> str:
    """The name of a ShadowMiss without its prefix, e.g. "QUEUE_FULL"; empty for 0."""
    return stated_name(ShadowMiss, miss)


def preference_name(preference: int) -> str:
    """The name of a Preference without its prefix, e.g. "FIRST"; empty for 0."""
    return stated_name(Preference, preference)
