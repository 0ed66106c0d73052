"""Finds the judgements of any message, with the reasons of those that abstain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from google.protobuf.message import Message

from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_CALL_REJECTED
from dramaturg.api.evaluation.v1.scripts_pb2 import ShadowAssessment
from dramaturg.api.evaluation.v1.shadows_pb2 import ShadowJudgement
from dramaturg.results.names import abstention_name

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
