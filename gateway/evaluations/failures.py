"""The failures of calls to judges, and those of models under test to give a usable output.

A refusal, an empty output and an output that the token cap cuts off say something about the model, so they
count against it and are no abstentions. All other reasons (failed judges and providers, timeouts, content
filters, answers that cannot be read) remain abstentions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Assessment
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.judge.protocols import MAX_ANSWER_BYTES
from dramaturg.judge.roles import Role
from dramaturg.judge.verdicts import abstained
from dramaturg.service.errors import ServiceError
from dramaturg.service.logs import without_credentials

# Addresses as gRPC writes them ("ipv4:10.0.0.7:50051", "ipv6:[::1]:50051", "unix:/run/judge"), and HOST:PORT.
_ADDRESS = re.compile(
    r"\b(?:ipv[46]|dns|unix(?:-abstract)?|xds):\S+|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b|\[[0-9a-fA-F:]{2,45}\](?::\d+)?"
    r"|\b[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}:\d{2,5}\b"
)

_MAX_MESSAGE_CHARACTERS = 500
"""The most characters of a judge's error in an explanation."""
_OF_CALLERS = (
    error_reason_pb2.ERROR_REASON_UNSPECIFIED,
    error_reason_pb2.ERROR_REASON_UNAUTHENTICATED,
    error_reason_pb2.ERROR_REASON_PERMISSION_DENIED,
)
_REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_REJECTED = (
    error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
    error_reason_pb2.ERROR_REASON_PROVIDER_REJECTED,
    error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED,
    error_reason_pb2.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED,
    error_reason_pb2.ERROR_REASON_PROVIDER_ADDRESS_INVALID,
    error_reason_pb2.ERROR_REASON_COMPLETION_NOT_RECORDED,
    error_reason_pb2.ERROR_REASON_WEIGHTS_MISSING,
)
_BY_REASON = {
    **dict.fromkeys(_REJECTED, verdict_pb2.ABSTAIN_REASON_CALL_REJECTED),
    error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE: verdict_pb2.ABSTAIN_REASON_PROVIDER_UNAVAILABLE,
    error_reason_pb2.ERROR_REASON_BATCH_PENDING: verdict_pb2.ABSTAIN_REASON_BATCH_PENDING,
    error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED: verdict_pb2.ABSTAIN_REASON_OVER_BUDGET,
    error_reason_pb2.ERROR_REASON_CRITERION_UNKNOWN: verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
    error_reason_pb2.ERROR_REASON_TOO_LARGE: verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
}


TRANSIENT = frozenset(
    {
        verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE,
        verdict_pb2.ABSTAIN_REASON_PROVIDER_UNAVAILABLE,
        verdict_pb2.ABSTAIN_REASON_TIMED_OUT,
    }
)
"""The reasons after which a run asks again."""


class Failure(NamedTuple):
    """The reason for a missing answer."""

    reason: AbstainReason.ValueType
    """The reason of the abstentions."""
    explanation: str
    """The explanation, a predicate whose subject is the judge."""
    retry_after: float | None = None
    """The retry delay that the judge requests, in seconds. None: not stated."""
    judge: str = ""
    """The role and name of the judge, for example "critic 'llm'". Empty while the call is known."""


def timed_out() -> Failure:
    """The failure of a judge that did not answer before its timeout."""
    return Failure(verdict_pb2.ABSTAIN_REASON_TIMED_OUT, "did not answer in time")


def of_error(error: ServiceError, role: Role) -> Failure:
    """The failure of a call to a judge, or of one candidate in it.

    Args:
        error: The error.
        role: The role in which the judge was called.
    """
    if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return timed_out()
    if error.code is grpc.StatusCode.UNIMPLEMENTED:
        return Failure(verdict_pb2.ABSTAIN_REASON_CALL_REJECTED, f"does not implement {role.contract}")
    if error.code in _REFUSALS and error.reason in _OF_CALLERS:
        # The words concern the gateway's credentials.
        explanation = f"refused the identity of the gateway with {error.code.name}"
        return Failure(verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE, explanation, error.retry_after)
    reason = _BY_REASON.get(error.reason, verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE)
    return Failure(
        # The explanation becomes a part of a sentence.
        reason,
        f"failed with {_name(error)}: {without_addresses(error.message).rstrip('.')}",
        error.retry_after,
    )


def too_large() -> Failure:
    """The failure of a judge whose answer exceeds the limit of its size."""
    return Failure(verdict_pb2.ABSTAIN_REASON_UNPARSABLE, f"answered with more than {MAX_ANSWER_BYTES} bytes")


def quarantined(reason: str) -> Failure:
    """The failure of a judge in quarantine.

    Args:
        reason: Why it is there, with the judge as "it".
    """
    return Failure(verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE, f"is in quarantine: {reason.rstrip('.')}")


def broken_contract(fault: str) -> Failure:
    """The failure of a service whose answer breaks a limit of its contract.

    Args:
        fault: The field and the limit.
    """
    return Failure(verdict_pb2.ABSTAIN_REASON_UNPARSABLE, f"broke its contract: {fault.rstrip('.')}")


def wrong_version(deviation: str) -> Failure:
    """The failure of a judge that is not called for its version.

    Args:
        deviation: How its version deviates from the expected one, as a predicate.
    """
    return Failure(verdict_pb2.ABSTAIN_REASON_CALL_REJECTED, deviation)


def unidentified(expected: str) -> Failure:
    """The failure of a judge that does not state its identity, where a version is expected."""
    explanation = f"does not state its identity; expect_version is {expected!r}"
    return Failure(verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE, explanation)


def unanswered() -> Failure:
    """The failure of a judge that left a candidate out of its answers."""
    return Failure(verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE, "did not answer for this candidate")


def unsupported() -> Failure:
    """The failure of a judge that judges none of the criteria."""
    return Failure(verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, "judges none of these criteria")


def not_shown(part: str, capability: str) -> Failure:
    """The failure of a judge that does not take a part of a candidate.

    Args:
        part: The part, as text.
        capability: The capability that its identity lacks.
    """
    return Failure(
        verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
        f"takes no {part}: its identity lacks the capability {capability!r}",
    )


def never_asked(answer: Any) -> bool:
    """Whether a model call for this answer was prepared and no completion came back.

    The provenance names the prompt before the call, and each completion, usable or not.
    """
    made = answer.provenance
    return bool(answer.failure) and bool(made.prompts) and not made.completions


def abstain_all(
    judge: str, role: Role, failure: Failure, criteria: Sequence[str], identity: Identity | None
) -> Assessment:
    """The assessment that replaces a missing answer.

    Args:
        judge: The registered name of the judge.
        role: The role in which it was called.
        failure: The reason for the missing answer.
        criteria: The criteria that the judge answers for.
        identity: The identity of the judge. None: unknown.
    """
    rationale = f"The judge {judge!r} {failure.explanation}."
    provenance = Provenance(contract=role.contract)
    if identity is not None:
        provenance.name, provenance.version = identity.name, identity.version
    return Assessment(
        verdicts=[abstained(criterion, failure.reason, rationale) for criterion in criteria],
        provenance=provenance,
    )


def without_addresses(message: str) -> str:
    """The first 500 characters of a message, without network addresses and credentials.

    A judge may quote the token that it is called with.
    """
    # An address that the limit cuts is none.
    shown = _ADDRESS.sub("(address)", without_credentials(message[: 2 * _MAX_MESSAGE_CHARACTERS]))
    return shown if len(shown) <= _MAX_MESSAGE_CHARACTERS else f"{shown[:_MAX_MESSAGE_CHARACTERS]}…"


def _name(error: ServiceError) -> str:
    known = error.reason != error_reason_pb2.ERROR_REASON_UNSPECIFIED
    return f"{error.code.name} ({error.reason_name})" if known else error.code.name


MODEL_FAILURES = frozenset(
    {
        verdict_pb2.ABSTAIN_REASON_REFUSED,
        verdict_pb2.ABSTAIN_REASON_EMPTY,
        verdict_pb2.ABSTAIN_REASON_TRUNCATED,
    }
)


def is_model_failure(reason: AbstainReason.ValueType, *, abstains: bool) -> bool:
    """Whether a missing output counts as a failure of the model under test.

    Args:
        reason: The reason of the missing output.
        abstains: ``unusable_outputs_abstain`` of the request or of the run.
    """
    return reason in MODEL_FAILURES and not abstains
