"""Reads an answer of yes or no, and how likely the model held "yes"."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from dramaturg.api.generation.v1.generation_service_pb2 import TokenLogprob

_ANSWER = re.compile(r"\W*(?:answer\s*:\W*)?(yes|no)\b(?=\s*(?:[.,;:!\n*\"'`)—–-]|$))", re.IGNORECASE)
_BOTH = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
_MARKS = " \t\r\n*_`\"'.,;:!()\u2581\u0120"
"""What surrounds a word in a token, the space signs of tokenizers included."""


def read_yes_no(text: str) -> bool | None:
    """Reads an answer that begins with "yes" or "no" and does not say the other as well.

    Returns:
        Whether it is yes, or None where it is not clear.
    """
    found = _ANSWER.match(text)
    if not found or len({word.casefold() for word in _BOTH.findall(text)}) != 1:
        return None
    return found[1].casefold() == "yes"


def probability_of_yes(tokens: Sequence[TokenLogprob], answer: bool) -> float | None:
    """How likely "yes" was, given that the answer was "yes" or "no".

    The first token of the answer that is one of the two words decides. Where the provider lists what could
    have stood in its place, the probabilities of all spellings of each word are summed and normalised over
    the two; a word that is not listed counts as impossible. Where it lists nothing, the other word is given
    what is left.

    Args:
        tokens: The tokens of the text.
        answer: What ``read_yes_no`` read in the text.

    Returns:
        A number from 0 to 1, or None where the tokens do not show the answer.
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
        # The list leaves out the token itself, or there is none.
        mass[said] = math.exp(token.logprob)
        if not token.alternatives:
            mass[not said] = 1 - mass[said]
    total = mass[True] + mass[False]
    return mass[True] / total if total else None


def _word(token: str) -> bool | None:
    return {"yes": True, "no": False}.get(token.strip(_MARKS).casefold())
