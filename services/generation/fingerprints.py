"""The content address of a call: equal calls have equal fingerprints, on every machine and for ever.

A tenant's calls are told from those of others: whatever is found by a fingerprint is the tenant's own.
"""

from __future__ import annotations

import hashlib
import json

from services.generation.calls import Call

VERSION = 1
"""Raised when the same call would get another fingerprint; a golden test holds it."""

_canonical = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def fingerprint(call: Call, address: str = "") -> str:
    """The SHA-256, in lower-case hexadecimal, of all that decides the answer to ``call``.

    Args:
        call: The call.
        address: The endpoint that is asked. Empty: whichever, and for whomever, as recordings are addressed.

    It is computed once for each call and endpoint.
    """
    known = call.fingerprints.get(address)
    if known is None:
        known = call.fingerprints[address] = _fingerprint(call, address)
    return known


def _fingerprint(call: Call, address: str) -> str:
    sampling = call.sampling
    content = {
        "version": VERSION,
        "address": address,
        "model": call.model,
        "messages": [[message.role.value, message.text] for message in call.messages],
        "temperature": _float(sampling.temperature),
        "top_p": _float(sampling.top_p),
        "max_output_tokens": sampling.max_output_tokens,
        "seed": sampling.seed,
        "stop": sampling.stop,
        # As text: the order of the members decides the order in which a model writes them.
        "schema": None if call.json_form is None else [call.json_form.name, call.json_form.text],
        "logprobs": [call.logprobs, call.top_logprobs],
        "repeat_index": call.repeat_index,
        "ask_index": call.ask_index,
    }
    if address and call.owner:
        content["owner"] = call.owner
    return hashlib.sha256(_canonical(content).encode()).hexdigest()


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)
