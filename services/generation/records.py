"""Answers and purchases as JSON objects, and the content address (fingerprint) of a call.

The ledger and the recordings keep them. Equal calls have equal fingerprints, on every machine and for ever.
Fingerprints include the tenant: everything found by a fingerprint belongs to the tenant.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from pydantic_core import to_json

from services.generation.answers.forms import JsonForm, json_form
from services.generation.calls import (
    Alternative,
    Answer,
    Call,
    FinishReason,
    Image,
    Message,
    Purchase,
    Role,
    Sampling,
    Token,
    TokenCounts,
)


def answer_to_record(answer: Answer) -> dict[str, Any]:
    """The answer as JSON members; what was not said is left out."""
    record: dict[str, Any] = {"text": answer.text, "finish": answer.finish.value}
    if answer.refusal:
        record["refusal"] = answer.refusal
    if answer.reasoning:
        record["reasoning"] = answer.reasoning
    if answer.detail:
        record["detail"] = answer.detail
    if answer.notes:
        record["notes"] = answer.notes
    if answer.omitted:
        record["omitted"] = answer.omitted
    if answer.model:
        record["model"] = answer.model
    if answer.counts is not None:
        counts = answer.counts
        record["counts"] = [counts.prompt, counts.completion, counts.cached_prompt]
        if counts.reasoning:
            record["counts"].append(counts.reasoning)
    if answer.tokens:
        record["tokens"] = [
            [token.text, token.logprob, [[other.token, other.logprob] for other in token.alternatives]]
            for token in answer.tokens
        ]
    record["latency"] = answer.latency
    return record


def answer_from_record(record: Mapping[str, Any]) -> Answer:
    """The inverse of [answer_to_record].

    Raises:
        ValueError, TypeError, KeyError: it is no such record.
    """
    counts = record.get("counts")
    return Answer(
        text=str(record["text"]),
        finish=FinishReason(record.get("finish", FinishReason.STOP)),
        refusal=str(record.get("refusal", "")),
        reasoning=str(record.get("reasoning", "")),
        detail=str(record.get("detail", "")),
        notes=tuple(record.get("notes", ())),
        omitted=tuple(record.get("omitted", ())),
        model=str(record.get("model", "")),
        counts=None if counts is None else TokenCounts(*map(int, counts)),
        tokens=tuple(
            Token(text, logprob, tuple(Alternative(*other) for other in others))
            for text, logprob, others in record.get("tokens", ())
        ),
        latency=float(record.get("latency", 0.0)),
    )


def purchase_to_record(purchase: Purchase) -> dict[str, Any]:
    """The purchase as JSON members, without what it cost."""
    return {
        "fingerprint": purchase.fingerprint,
        "provider": purchase.provider,
        "requested_model": purchase.requested_model,
        "answer": answer_to_record(purchase.answer),
    }


def kept_purchase_from_record(record: Mapping[str, Any]) -> Purchase:
    """The purchase as it is served from the cache: at no cost."""
    return Purchase(
        fingerprint=record["fingerprint"],
        provider=record["provider"],
        requested_model=record["requested_model"],
        answer=answer_from_record(record["answer"]),
        cached=True,
        cost=0.0,
    )


compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Writes a value as JSON in one line without blanks."""


def to_text(purchases: Sequence[Purchase]) -> str:
    """The calls as a JSON list in one line."""
    return to_json([purchase_to_record(purchase) for purchase in purchases]).decode()


def from_text(text: str) -> tuple[Purchase, ...]:
    """The inverse of [to_text]: the calls as they are served from a ledger, at no cost."""
    return tuple(map(kept_purchase_from_record, json.loads(text)))


def batch_answer_to_text(answer: Answer) -> str:
    """An answer to a request that waited for a batch, with the fact whether a batch answered it."""
    return to_json({**answer_to_record(answer), "batched": answer.batched}).decode()


def batch_answer_from_text(text: str) -> Answer:
    """The inverse of [batch_answer_to_text]."""
    record = json.loads(text)
    answer = answer_from_record(record)
    answer.batched = bool(record["batched"])
    return answer


def call_to_text(call: Call) -> str:
    """The call as a JSON object in one line, as far as it decides the answer, with its owner."""
    form = call.json_form
    return to_json(
        {
            "model": call.model,
            "messages": [
                [
                    said.role.value,
                    said.text,
                    [one if isinstance(one, str) else [one.media_type, one.base64] for one in said.parts],
                ]
                for said in call.messages
            ],
            "sampling": asdict(call.sampling),
            "form": None if form is None else [form.name, form.text, form.accepted_text],
            "logprobs": [call.logprobs, call.top_logprobs],
            "indices": [call.repeat_index, call.ask_index],
            "omit": sorted(call.omit),
            "owner": call.owner,
        }
    ).decode()


def call_from_text(text: str) -> Call:
    """The inverse of [call_to_text]."""
    record = json.loads(text)
    sampling = record["sampling"]
    return Call(
        record["model"],
        tuple(
            Message(
                Role(role),
                said,
                tuple(one if isinstance(one, str) else Image(b64decode(one[1]), one[0]) for one in parts),
            )
            for role, said, parts in record["messages"]
        ),
        Sampling(**{**sampling, "stop": tuple(sampling["stop"])}),
        None if record["form"] is None else json_form(*record["form"]),
        logprobs=record["logprobs"][0],
        top_logprobs=record["logprobs"][1],
        repeat_index=record["indices"][0],
        ask_index=record["indices"][1],
        omit=frozenset(record["omit"]),
        owner=record["owner"],
    )


def call_numbers(purchases: Sequence[Purchase], fingerprint: str = "") -> list[int]:
    """The numbers of the notes on these calls (see ``Ledger.record_call``).

    Args:
        purchases: The calls.
        fingerprint: Of calls with this fingerprint alone. Empty: of all.
    """
    return [
        purchase.answer.call_number
        for purchase in purchases
        if purchase.answer.call_number is not None
        and (not fingerprint or purchase.fingerprint == fingerprint)
    ]


VERSION = 1
"""Raised when the same call would get another fingerprint; a golden test holds it."""

# Compact JSON, its members sorted by name. Encoding it as a whole would write the long texts anew.
_CONTENT = (
    b'{"address":%(address)b,"ask_index":%(ask_index)d,"logprobs":[%(logprobs)b,%(top_logprobs)d],'
    b'"max_output_tokens":%(max_output_tokens)b,"messages":[%(messages)b],"model":%(model)b,%(owner)b%(reasoning_effort)b'
    b'"repeat_index":%(repeat_index)d,"schema":%(schema)b,"seed":%(seed)b,"stop":%(stop)b,'
    b'"temperature":%(temperature)b,"top_p":%(top_p)b,"version":%(version)d}'
)
_TRUTH = {False: b"false", True: b"true"}


def fingerprint(call: Call, address: str = "") -> str:
    """The SHA-256, in lower-case hexadecimal, of all that decides the answer to ``call``.

    Args:
        call: The call.
        address: The endpoint. Empty: any endpoint and any tenant, the address of recordings.

    It is computed once for each call and endpoint.
    """
    known = call.fingerprints.get(address)
    if known is None:
        known = call.fingerprints[address] = _fingerprint(call, address)
    return known


def _fingerprint(call: Call, address: str) -> str:
    sampling, form = call.sampling, call.json_form
    content = _CONTENT % {
        b"address": to_json(address),
        b"ask_index": call.ask_index,
        b"logprobs": _TRUTH[call.logprobs],
        b"top_logprobs": call.top_logprobs,
        b"max_output_tokens": _integer(sampling.max_output_tokens),
        b"messages": b",".join(
            [b'["%b",%b%b]' % (said.role.encode(), said.quoted, _parts(said)) for said in call.messages]
        ),
        b"model": to_json(call.model),
        b"owner": b'"owner":%b,' % to_json(call.owner) if address and call.owner else b"",
        b"reasoning_effort": b'"reasoning_effort":%b,' % to_json(sampling.reasoning_effort)
        if sampling.reasoning_effort
        else b"",
        b"repeat_index": call.repeat_index,
        b"schema": b"null" if form is None else _schema(form),
        b"seed": _integer(sampling.seed),
        b"stop": to_json(sampling.stop),
        b"temperature": _float(sampling.temperature),
        b"top_p": _float(sampling.top_p),
        b"version": VERSION,
    }
    return hashlib.sha256(content).hexdigest()


def _parts(said: Message) -> bytes:
    """The parts of a message, images by their digest. Empty: it has none."""
    if not said.parts:
        return b""
    return b"," + to_json(
        [
            one if isinstance(one, str) else [one.media_type, hashlib.sha256(one.data).hexdigest()]
            for one in said.parts
        ]
    )


@lru_cache(maxsize=256)
def _schema(form: JsonForm) -> bytes:
    """As text: the order of the members decides the order in which a model writes them."""
    return to_json([form.name, form.text])


def _float(value: float | None) -> bytes:
    return b"null" if value is None else repr(float(value)).encode()


def _integer(value: int | None) -> bytes:
    return b"null" if value is None else b"%d" % value
