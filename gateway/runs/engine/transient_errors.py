"""Tells transient failures, after which a sample is retried, from permanent ones.

The errors and abstentions that a restart of a judge, or of a service behind it, causes are transient: they
must not stay in the results of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import PanelVote
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment, GoldAnswer, ShadowAssessment
from dramaturg.api.evaluation.v1.shadows_pb2 import ShadowJudgement
from dramaturg.service.errors import ServiceError
from gateway.evaluations.failures import Failure

_CODES = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    }
)
_ABSTENTIONS = frozenset(
    {
        verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE,
        verdict_pb2.ABSTAIN_REASON_PROVIDER_UNAVAILABLE,
        verdict_pb2.ABSTAIN_REASON_TIMED_OUT,
    }
)
_ABSTAIN_REASON = verdict_pb2.AbstainReason.DESCRIPTOR.full_name
_NO_PART = tuple(
    one.DESCRIPTOR.full_name for one in (PanelVote, ShadowAssessment, ShadowJudgement, GoldAnswer)
)
"""Messages whose abstentions leave no gap in a result, or one that ``RunKind.preparation`` covers."""

Finds = Callable[[Any], Any]
"""Returns the message that abstained, or None."""


def is_transient(error: ServiceError) -> bool:
    """Whether a failed sample may succeed when it is retried."""
    return error.code in _CODES and error.reason != error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED


def transient_gap(
    result: Message, failures: Sequence[Failure], preparation: tuple[str, Any] | None = None
) -> str:
    """Describes an abstention or a missing part of a result that has a transient reason. Empty: none.

    Args:
        result: The result of an evaluation.
        failures: The judge calls that failed during the evaluation.
        preparation: See ``RunKind.preparation``.
    """
    found = _finder(result.DESCRIPTOR)(result)
    if found is not None and (said := getattr(found, "rationale", "")):
        return str(said)
    for failure in failures:
        if failure.reason in _ABSTENTIONS:
            return f"{failure.judge} {failure.explanation}"
    if preparation is not None:
        absence, answer = preparation
        if _never_asked(answer):
            return f"{absence}: {answer.failure}"
    return "" if found is None else _abstention(found)


def _never_asked(answer: Any) -> bool:
    """Whether a model call for this answer was prepared and no completion came back.

    The provenance names the prompt before the call, and each completion, usable or not.
    """
    made = answer.provenance
    return bool(answer.failure) and bool(made.prompts) and not made.completions


def _abstention(message: Any) -> str:
    """Describes the abstention of a message that has no rationale."""
    reasons = (getattr(message, field.name) for field in message.DESCRIPTOR.fields if _is_reason(field))
    name = next(verdict_pb2.AbstainReason.Name(reason) for reason in reasons if reason in _ABSTENTIONS)
    who = f"model {model!r}" if (model := getattr(message, "model", "")) else "a judge"
    return f"{who} abstained: {name.removeprefix('ABSTAIN_REASON_')}"


@cache
def _finder(descriptor: Descriptor) -> Finds:
    """Makes a search for transient abstentions in messages of a type, limited to fields that can hold one."""
    reasons = [field.name for field in descriptor.fields if _is_reason(field)]
    parts = [
        (field.name, field.is_repeated, _finder(field.message_type))
        for field in descriptor.fields
        if field.message_type is not None and _holds_reasons(field.message_type)
    ]

    is_assessment = descriptor.full_name == CandidateAssessment.DESCRIPTOR.full_name

    def find(message: Any) -> Any:
        if is_assessment and message.panel:
            return None  # the verdict of the panel counts
        for name in reasons:
            if getattr(message, name) in _ABSTENTIONS:
                return message
        for name, repeated, look in parts:
            if repeated:
                for one in getattr(message, name):
                    if (found := look(one)) is not None:
                        return found
            elif message.HasField(name) and (found := look(getattr(message, name))) is not None:
                return found
        return None

    return find


@cache
def _holds_reasons(descriptor: Descriptor) -> bool:
    """Whether messages of a type hold an AbstainReason at any depth. No result type is recursive."""
    if descriptor.GetOptions().map_entry or descriptor.full_name in _NO_PART:
        return False
    return any(
        _is_reason(field) or (field.message_type is not None and _holds_reasons(field.message_type))
        for field in descriptor.fields
    )


def _is_reason(field: FieldDescriptor) -> bool:
    return field.enum_type is not None and field.enum_type.full_name == _ABSTAIN_REASON
