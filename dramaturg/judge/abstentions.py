"""Maps failures to abstentions, except failures of the judge's configuration."""

from __future__ import annotations

from typing import NamedTuple

import grpc

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.api.generation.v1.generation_service_pb2 import Completion
from dramaturg.service.errors import ServiceError

# A configuration error fails every request, so it is an error of the call, not of a verdict.
_CONFIGURATION = frozenset(
    {
        error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED,
        error_reason_pb2.ERROR_REASON_PROVIDER_ADDRESS_INVALID,
        error_reason_pb2.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED,
        error_reason_pb2.ERROR_REASON_COMPLETION_NOT_RECORDED,
        error_reason_pb2.ERROR_REASON_WEIGHTS_MISSING,
    }
)
# The statuses of a dependency for an invalid request: an internal error.
_OUR_FAULT = frozenset({"INVALID_ARGUMENT", "UNIMPLEMENTED"})

_STATUSES = {
    generation_service_pb2.COMPLETION_STATUS_UNPARSABLE: (
        verdict_pb2.ABSTAIN_REASON_UNPARSABLE,
        "The model's answer could not be read",
    ),
    generation_service_pb2.COMPLETION_STATUS_REFUSED: (
        verdict_pb2.ABSTAIN_REASON_REFUSED,
        "The model declined to answer",
    ),
    generation_service_pb2.COMPLETION_STATUS_TRUNCATED: (
        verdict_pb2.ABSTAIN_REASON_TRUNCATED,
        "The model's answer was cut off",
    ),
    generation_service_pb2.COMPLETION_STATUS_FILTERED: (
        verdict_pb2.ABSTAIN_REASON_CONTENT_FILTERED,
        "The provider's content filter stopped the request or the answer",
    ),
    generation_service_pb2.COMPLETION_STATUS_TOOL_CALL: (
        verdict_pb2.ABSTAIN_REASON_TOOL_CALL,
        "The model called a tool in place of an answer",
    ),
    generation_service_pb2.COMPLETION_STATUS_INTERRUPTED: (
        verdict_pb2.ABSTAIN_REASON_INTERRUPTED,
        "The answer did not end normally",
    ),
    generation_service_pb2.COMPLETION_STATUS_EMPTY: (
        verdict_pb2.ABSTAIN_REASON_EMPTY,
        "The model's answer was empty",
    ),
}


class Abstention(NamedTuple):
    """The reason why there is no judgement."""

    reason: AbstainReason.ValueType
    """The reason."""
    explanation: str
    """The reason in words."""


def of_completion(completion: Completion) -> Abstention | None:
    """Returns the reason why a completion is unusable, or None where it is usable."""
    if completion.status == generation_service_pb2.COMPLETION_STATUS_OK:
        return None
    reason, explanation = _STATUSES.get(
        completion.status,
        (verdict_pb2.ABSTAIN_REASON_UNPARSABLE, "The model's answer has a status that is not known here"),
    )
    detail = completion.parse_error or completion.status_detail
    detail = f": {detail.rstrip('.')}" if detail else ""
    return Abstention(reason, f"{explanation}{detail}.")


def of_failure(error: ServiceError) -> Abstention | None:
    """Returns the abstention for a failed call, or None where the failure affects every request.

    Args:
        error: The failure, as returned by ``dramaturg.service.errors.downstream``.
    """
    explanation = f"The model could not be asked: {error.message}"
    if error.reason in _CONFIGURATION or error.metadata.get("code") in _OUR_FAULT:
        return None
    if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Abstention(verdict_pb2.ABSTAIN_REASON_TIMED_OUT, explanation)
    if error.reason == error_reason_pb2.ERROR_REASON_CONTEXT_LENGTH_EXCEEDED:
        return Abstention(verdict_pb2.ABSTAIN_REASON_CONTEXT_LENGTH_EXCEEDED, explanation)
    if error.reason == error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED:
        return Abstention(verdict_pb2.ABSTAIN_REASON_OVER_BUDGET, explanation)
    if error.reason == error_reason_pb2.ERROR_REASON_BATCH_PENDING:
        return Abstention(verdict_pb2.ABSTAIN_REASON_BATCH_PENDING, explanation)
    if error.reason == error_reason_pb2.ERROR_REASON_PROVIDER_REJECTED:
        return Abstention(verdict_pb2.ABSTAIN_REASON_CALL_REJECTED, explanation)
    if error.reason == error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE:
        return Abstention(verdict_pb2.ABSTAIN_REASON_PROVIDER_UNAVAILABLE, explanation)
    return Abstention(verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE, explanation)
