"""Limits of judges' answers: texts of bounded size, usage that model calls account for, the pinned identity.

A judge is software of another team. Its answer cannot make a result unreadable, spend a budget by a claim, or
name another judge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.message import Message

from dramaturg.api.common.v1.provenance_pb2 import CompletionReference, Provenance, Usage
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_UNPARSABLE
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs_pb
from dramaturg.judge.protocols import MAX_ANSWER_BYTES, MAX_CALL_TOKENS
from dramaturg.judge.provenance import provenances_in, total_usage
from dramaturg.judge.roles import Role
from dramaturg.service.validation import violations

CORRECTIONS = "gateway-corrections"
"""The parameter of a provenance that lists the corrections of the judge's answer."""
UNEXPECTED_VERSION = "unexpected-version"
"""The parameter of a provenance that states how the version of the judge deviates from the expected one."""
CLAIMED_USAGE = "claimed-usage"
"""The parameter of a provenance with the usage that the judge claims, where it was not counted."""

MAX_RESULT_BYTES = 16 << 20
"""The bytes of a result above which the texts of model answers in it are cut."""
MAX_TEXT_CHARACTERS = 20_000
"""The most characters of a text in an answer that is cut."""
SHORT_TEXT_CHARACTERS = 500
"""The same in an answer that is still too large."""
MAX_ELEMENTS = 200
"""The most elements of a list in an answer that is cut."""
MAX_COST_USD = 1_000.0
"""The highest cost of one model call that counts, in US dollars."""

MAX_LATENCY_SECONDS = 86_400
"""The longest time of an answer or of a model call that is kept."""

_JUDGING = "dramaturg.api.judging."
_WRITING = ("dramaturg.api.generation.", "dramaturg.api.agents.", "dramaturg.api.roles.")
_CUT = " [cut by the gateway]"


def limit_answer(answer: Any, identity: Identity | None) -> bool:
    """Applies the limits to an answer with a provenance; the answer is changed.

    The corrections are listed in the provenance's parameter "gateway-corrections".

    Args:
        answer: The answer of a judge: a message with the field ``provenance``.
        identity: The identity of the judge as the gateway fetched it. None: unknown.

    Returns:
        False if the answer exceeds ``MAX_ANSWER_BYTES`` even with short texts. It must not be used.
    """
    corrections: list[str] = []
    fits = True
    if answer.ByteSize() > MAX_ANSWER_BYTES:
        size = answer.ByteSize()
        for longest in (MAX_TEXT_CHARACTERS, SHORT_TEXT_CHARACTERS):
            if answer.ByteSize() > MAX_ANSWER_BYTES:
                _cut(answer, longest)
        corrections.append(f"cut the answer of {size} bytes to {answer.ByteSize()}")
        fits = answer.ByteSize() <= MAX_ANSWER_BYTES
    if answer.HasField("provenance") or identity is not None:
        corrections += _limit_provenance(answer.provenance, identity)
    if corrections:
        add_corrections(answer.provenance, corrections)
    return fits


def limit_response(response: Any, role: Role, identity: Identity | None) -> bool:
    """Applies the limits to a response of a role.

    Texts are cut in responses of judges alone. Those of other roles are evaluated, or lead to what is.

    Args:
        response: The response; changed.
        role: The role.
        identity: The identity of the judge as the gateway fetched it. None: unknown.

    Returns:
        As ``limit_answer`` does.
    """
    if not role.contract.startswith(_JUDGING):
        limit_claims(response)
        return True
    answer = _carrier(response)
    return answer is None or limit_answer(answer, identity)


def empty_breach(response: Any, role: Role) -> str:
    """Empties a response of a service that writes, if it breaks a limit of its contract.

    The provenance stays, since the answer is paid for; it says what broke the contract. The answers of judges
    are cut instead (``limit_answer``).

    Returns:
        The first limit that is broken, if the contract has no field to state that there is no answer; else
        empty.
    """
    if not role.contract.startswith(_WRITING) or not isinstance(response, Message):
        return ""
    found = violations(response)
    if not found:
        return ""
    fault = f"{found[0].field} {found[0].description}"
    stated = {"abstain_reason": ABSTAIN_REASON_UNPARSABLE, "failure": f"broke its contract: {fault}"}
    fields = [name for name in stated if name in response.DESCRIPTOR.fields_by_name]
    if not fields:
        return fault
    provenance = Provenance()
    provenance.CopyFrom(response.provenance)  # type: ignore[attr-defined]  # of every such response
    add_corrections(provenance, [f"dropped the answer, which broke its contract: {fault}"])
    response.Clear()
    response.provenance.CopyFrom(provenance)  # type: ignore[attr-defined]
    for name in fields:
        setattr(response, name, stated[name])
    return ""


def limit_result(result: Any) -> None:
    """Cuts the texts in the provenances of a result above ``MAX_RESULT_BYTES``; the result is changed.

    The texts of the request, verdicts and usage stay as they are. Each provenance that is cut says so.
    """
    for longest in (MAX_TEXT_CHARACTERS, SHORT_TEXT_CHARACTERS):
        size = result.ByteSize()
        if size <= MAX_RESULT_BYTES:
            return
        for provenance in provenances_in(result):
            before = provenance.ByteSize()
            _cut(provenance, longest, None)
            if provenance.ByteSize() < before:
                add_corrections(provenance, [f"cut the texts of a result of {size} bytes"])


def provenance_of(response: Any) -> Provenance | None:
    """The provenance of a response, of its assessment or of its rating; None where it has none."""
    answer = _carrier(response)
    return answer.provenance if answer is not None and answer.HasField("provenance") else None


def _carrier(response: Any) -> Any:
    """The part of a response with the provenance: the response, its assessment or its rating; or None."""
    member = _carrier_member(response.DESCRIPTOR.full_name)
    if member is None or not member:
        return response if member == "" else None
    return getattr(response, member) if response.HasField(member) else None


@cache
def _carrier_member(message_name: str) -> str | None:
    """The member that has the provenance. Empty: the message itself; None: no member."""
    descriptor = descriptor_pool.Default().FindMessageTypeByName(message_name)
    if "provenance" in descriptor.fields_by_name:
        return ""
    for field in descriptor.fields:
        inner = field.message_type
        if inner is not None and not field.is_repeated and "provenance" in inner.fields_by_name:
            return field.name
    return None


def limit_claims(response: Any) -> None:
    """Applies the limits of usage to a response of any contract; the response is changed."""
    answer = _carrier(response)
    if answer is not None and answer.HasField("provenance"):
        corrections = list(_limit_provenance(answer.provenance, None))
        if corrections:
            add_corrections(answer.provenance, corrections)


def states_other(provenance: Provenance, identity: Identity | None) -> bool:
    """Whether a provenance states another name or version than the identity that the gateway fetched."""
    if identity is None:
        return False
    return provenance.name not in {"", identity.name} or provenance.version not in {"", identity.version}


def mark_version(provenance: Provenance, deviation: str) -> None:
    """States in a provenance how the version of the judge deviates. An empty text: it does not."""
    if deviation:
        provenance.parameters[UNEXPECTED_VERSION] = deviation


def add_corrections(provenance: Provenance, corrections: Sequence[str]) -> None:
    """Adds to the corrections that a provenance lists."""
    known = provenance.parameters.get(CORRECTIONS, "")
    provenance.parameters[CORRECTIONS] = "; ".join([*([known] if known else []), *corrections])


def _limit_provenance(provenance: Provenance, identity: Identity | None) -> Iterator[str]:
    if identity is not None and (provenance.name, provenance.version) != (identity.name, identity.version):
        if provenance.name or provenance.version:
            stated = f"{provenance.name!r} {provenance.version!r}"
            yield f"replaced the name {stated} by that of the judge's identity"
        provenance.name, provenance.version = identity.name, identity.version
    for prompt in provenance.prompts:
        prompt.ClearField("text")
    yield from _limit_latency(provenance, "an answer")
    for completion in provenance.completions:
        yield from _limit_usage(completion.usage)
        yield from _limit_latency(completion, "a model call")
    if not provenance.HasField("usage") or not provenance.usage.ListFields():
        return
    known = total_usage(completion.usage for completion in provenance.completions)
    if provenance.usage != known and not _is_accounted_for(provenance.usage, known):
        provenance.parameters[CLAIMED_USAGE] = " ".join(
            f"{field.name}={value}" for field, value in provenance.usage.ListFields()
        )
        provenance.usage.CopyFrom(known)
        yield "replaced the usage by that of the listed model calls"


def _limit_latency(timed: Provenance | CompletionReference, what: str) -> Iterator[str]:
    """Removes an impossible latency; yields its description. Neither JSON nor sums can state some of them."""
    if not timed.HasField("latency"):
        return
    seconds, nanos = timed.latency.seconds, timed.latency.nanos
    if not (0 <= nanos < 10**9 and 0 <= seconds * 10**9 + nanos <= MAX_LATENCY_SECONDS * 10**9):
        timed.ClearField("latency")
        yield f"dropped the latency of {seconds} s of {what}"


_MOST: Mapping[str, float] = {
    "cost_usd": MAX_COST_USD,
    "unused_cost_usd": MAX_COST_USD,
    "estimated_cost_usd": MAX_COST_USD,
    "estimated_token_count": MAX_CALL_TOKENS,
    "prompt_token_count": MAX_CALL_TOKENS,
    "completion_token_count": MAX_CALL_TOKENS,
    "cached_prompt_token_count": MAX_CALL_TOKENS,
}
"""The largest possible amounts of one model call."""


def _limit_usage(usage: Usage) -> Iterator[str]:
    """Removes impossible amounts of one model call; yields a description of each."""
    for field, amount in usage.ListFields():
        if not 0 <= amount <= _MOST.get(field.name, math.inf):  # also true for NaN
            message: Message = usage
            message.ClearField(field.name)
            yield f"dropped the {field.name} {amount} of a model call"


def _is_accounted_for(claimed: Usage, known: Usage) -> bool:
    """Whether a claim equals the usage of the listed calls, of which unused completions are a part."""
    for field in claimed.DESCRIPTOR.fields:
        amount, counted = getattr(claimed, field.name), getattr(known, field.name)
        if field.name == "unused_completion_count":
            if amount > known.provider_call_count + known.cache_hit_count:
                return False
        elif field.name == "unused_cost_usd":
            if not 0.0 <= amount <= known.cost_usd * (1 + 1e-9):
                return False
        elif not math.isclose(amount, counted, rel_tol=1e-9, abs_tol=1e-12):
            return False
    return True


def _cut(message: Message, longest: int, elements: int | None = MAX_ELEMENTS) -> None:
    """Cuts the texts of a message at any depth, and its lists and maps. None: lists and maps are not cut.

    Roles stay whole: votes state the roles of the request.
    """
    if isinstance(message, pairs_pb.Role):
        return
    for field, value in message.ListFields():
        if _is_map(field):
            for key in list(value)[elements:] if elements is not None else ():
                del value[key]
            for key in value:
                if isinstance(value[key], str):
                    value[key] = _shortened(value[key], longest)
        elif field.is_repeated:
            if elements is not None:
                del value[elements:]
            for index, element in enumerate(value):
                if isinstance(element, Message):
                    _cut(element, longest, elements)
                elif isinstance(element, str):
                    value[index] = _shortened(element, longest)
        elif isinstance(value, Message):
            _cut(value, longest, elements)
        elif isinstance(value, str):
            setattr(message, field.name, _shortened(value, longest))


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - len(_CUT)] + _CUT
