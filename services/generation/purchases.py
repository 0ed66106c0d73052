"""What answered calls cost: as stated, else an upper bound of their tokens.

Byte-level tokenizers make at most one token of a byte (Radford et al. 2019, section 2.2), so that the bytes
of a text bound its tokens without the tokenizer of the model. Reasoning that a provider does not show is not
included.
"""

from __future__ import annotations

from services.generation.calls import Answer, Call, Purchase, TokenCounts, UsageEstimate
from services.generation.fingerprints import fingerprint
from services.generation.pricing import PriceTable
from services.generation.registry import ConfiguredProvider

MESSAGE_TOKENS = 16
"""The tokens that the template of a chat adds to a message, at most."""


def bought(configured: ConfiguredProvider, call: Call, answer: Answer) -> Purchase:
    """The purchase of an answer. The provider is noted to state token counts, or not to."""
    if not answer.replayed:
        configured.states_usage[call.model] = answer.counts is not None
    return Purchase(
        fingerprint(call, configured.provider.address),
        configured.provider.name,
        call.model,
        answer,
        cached=answer.replayed,
        cost=0.0 if answer.replayed else configured.prices.cost(call.model, answer),
        estimate=None if answer.replayed else estimate_usage(call, answer, configured.prices),
    )


def estimate_usage(call: Call, answer: Answer, prices: PriceTable) -> UsageEstimate | None:
    """The estimated usage of a call. None: the answer states it."""
    if answer.counts is not None:
        return None
    schema = "" if call.json_form is None else call.json_form.text
    prompt = _bytes(schema) + sum(_bytes(message.text) + MESSAGE_TOKENS for message in call.messages)
    completion = MESSAGE_TOKENS + sum(map(_bytes, (answer.text, answer.refusal, answer.reasoning)))
    counts = TokenCounts(prompt, completion)
    return UsageEstimate(prompt + completion, prices.cost(call.model, answer, counts))


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))
