"""Recognizes an evaluation whose models cannot be called, by its first sample."""

from __future__ import annotations

import re

from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_CALL_REJECTED,
    ABSTAIN_REASON_JUDGE_UNAVAILABLE,
    ABSTAIN_REASON_NOT_APPLICABLE,
    ABSTAIN_REASON_NOT_SUPPORTED,
    ABSTAIN_REASON_PROVIDER_UNAVAILABLE,
)
from dramaturg.results.abstentions import judgement_reasons
from dramaturg.service.errors import ServiceError

HINT = "The first sample could not be judged, so no other was started. `dramaturg providers check` says more."

MODEL_FAILURES = frozenset(
    {
        error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE,
        error_reason_pb2.ERROR_REASON_PROVIDER_ADDRESS_INVALID,
        error_reason_pb2.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED,
    }
)
"""The reasons of errors that mean that a model cannot be called."""
_NOT_ASKED = frozenset({ABSTAIN_REASON_NOT_APPLICABLE, ABSTAIN_REASON_NOT_SUPPORTED})
_UNCALLABLE = frozenset(
    {
        ABSTAIN_REASON_JUDGE_UNAVAILABLE,
        ABSTAIN_REASON_CALL_REJECTED,
        ABSTAIN_REASON_PROVIDER_UNAVAILABLE,
    }
)
_OF_PROVIDER = re.compile(r"provider '|ERROR_REASON_(?:PROVIDER_|MODEL_UNKNOWN)")
"""How the words of a failure show that a provider failed, and not a judge."""


class ModelsUnavailableError(Exception):
    """No model could be called for the first sample; the message holds the provider's words."""


def check_first_result(result: Message) -> None:
    """Checks the result of the first sample.

    Raises:
        ModelsUnavailableError: Every judgement abstains because its judge or model cannot be called.
    """
    # Other reasons need no answer of a model.
    abstentions = [found for found in judgement_reasons(result) if found.reason not in _NOT_ASKED]
    if abstentions and all(reason in _UNCALLABLE for reason, _ in abstentions):
        words = next((said for _, said in abstentions if _OF_PROVIDER.search(said)), "")
        if words:
            raise ModelsUnavailableError(words)


def is_judged(event: Message) -> bool:
    """Whether an event brings a judgement that does not abstain."""
    return any(not reason for reason, _ in judgement_reasons(event))


def check_first_error(error: ServiceError) -> None:
    """Checks the failure of the first sample.

    Raises:
        ModelsUnavailableError: No model can be called.
    """
    if error.reason in MODEL_FAILURES:
        raise ModelsUnavailableError(error.message)
