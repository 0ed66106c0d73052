"""Reads yes/no answers and the probability of "yes"."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dramaturg.api.generation.v1.generation_service_pb2 import TokenLogprob
from dramaturg.judge.short_answers import CONTINUED, options_of

_WORDS = {"yes": True, "no": False}
_ANSWERS = options_of(_WORDS, CONTINUED)
_MARKS = " \t\r\n*_`\"'.,;:!()\u2581\u0120"
"""The characters around a word in a token, including the space markers of tokenizers."""


def read_yes_no(text: str) -> bool | None:
    """Returns True for yes, False for no, None for an unclear answer (``dramaturg.judge.short_answers``)."""
    return _ANSWERS.value_of(text)


def probability_of_yes(tokens: Sequence[TokenLogprob], answer: bool) -> float | None:
    """Returns the probability of "yes", given that the answer is "yes" or "no".

    The first token of the answer that is one of the two words decides. Where the provider lists
    alternatives, the probabilities of all spellings of each word are summed and normalised over the two
    words; a word that is not listed has the probability 0. Without alternatives, the other word has the
    remaining probability.

    Args:
        tokens: The tokens of the text.
        answer: The result of ``read_yes_no``.

    Returns:
        The probability, in [0, 1], or None where the tokens do not contain the answer.
    """
    for token in tokens:
        said = _word(token.token)
        if said is None:
            continue
        if said != answer or not token.logprob <= 0:
            return None
        return _normalised(token, said)
    return None


def _normalised(token: TokenLogprob, said: bool) -> float | None:
    mass = {True: 0.0, False: 0.0}
    for alternative in token.alternatives:
        word = _word(alternative.token)
        if word is not None and alternative.logprob <= 0:
            mass[word] += math.exp(alternative.logprob)
    if mass[said] == 0:
        # The list lacks the token itself, or there is no list.
        mass[said] = math.exp(token.logprob)
        if not token.alternatives:
            mass[not said] = 1 - mass[said]
    total = mass[True] + mass[False]
    return mass[True] / total if total else None


def _word(token: str) -> bool | None:
    return _WORDS.get(token.strip(_MARKS).casefold())
