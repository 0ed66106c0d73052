"""Recognizes an evaluation whose models cannot be called, by its first sample."""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_JUDGE_UNAVAILABLE
from dramaturg.service.errors import ServiceError

HINT = "The first sample could not be judged, so no other was started. `dramaturg providers check` says more."

_LASTING = frozenset(
    {
        error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE,
        error_reason_pb2.ERROR_REASON_PROVIDER_ADDRESS_INVALID,
        error_reason_pb2.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED,
    }
)
_OF_PROVIDER = re.compile(r"provider '|ERROR_REASON_(?:PROVIDER_|MODEL_UNKNOWN)")
"""How the words of a failure show that a provider failed, and not a judge."""
_WORDS = ("rationale", "explanation", "failure", "detail")


class ModelsUnavailableError(Exception):
    """No model could be called for the first sample; the message holds the provider's words."""


def check_first_result(result: Message) -> None:
    """Checks the result of the first sample.

    Raises:
        ModelsUnavailableError: Every judgement abstains because its judge or model cannot be called.
    """
    abstentions = list(_abstentions(result))
    if abstentions and all(reason == ABSTAIN_REASON_JUDGE_UNAVAILABLE for reason, _ in abstentions):
        words = next((said for _, said in abstentions if _OF_PROVIDER.search(said)), "")
        if words:
            raise ModelsUnavailableError(words)


def is_judged(event: Message) -> bool:
    """Whether an event brings a judgement that does not abstain."""
    return any(not reason for reason, _ in _abstentions(event))


def check_first_error(error: ServiceError) -> None:
    """Checks the failure of the first sample.

    Raises:
        ModelsUnavailableError: No model can be called.
    """
    if error.reason in _LASTING:
        raise ModelsUnavailableError(error.message)


def _abstentions(message: Message) -> Iterator[tuple[int, str]]:
    """The reason of each judgement in ``message``, 0 where it is judged, with its words."""
    fields = message.DESCRIPTOR.fields_by_name
    if "abstain_reason" in fields:
        said = next(
            (getattr(message, name) for name in _WORDS if name in fields and getattr(message, name)), ""
        )
        yield message.abstain_reason, str(said)  # type: ignore[attr-defined]
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for part in value if field.is_repeated else (value,):
            yield from _abstentions(part)
