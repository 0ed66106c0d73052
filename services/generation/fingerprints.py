"""The content address of a call: equal calls have equal fingerprints, on every machine and for ever.

Fingerprints include the tenant: everything found by a fingerprint belongs to the tenant.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from pydantic_core import to_json

from services.generation.answers.forms import JsonForm
from services.generation.calls import Call, Message

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
