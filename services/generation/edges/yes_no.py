"""Reads yes/no answers and the probability of "yes"."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from dramaturg.api.generation.v1.generation_service_pb2 import TokenLogprob
from dramaturg.judge.reasoning import answer_text

_ANSWER = re.compile(
    r"\W*+(?:(?:(?:the|my)\s)?(?:final\s)?answer\s?(?::|is)\W*+)?(yes|no)\b"
    r"(?=[ \t]*+(?:[.,;:!\n*\"'`()—–-]|$))",
    re.IGNORECASE,
)
_DETERMINER = re.compile(
    r"(?<=\w\s)(?<!\bor\s)(?<!\band\s)(?<!answer\sis\s)no\s(?!(?:because|since|as|or|and|but|if)\b)(?=\w)",
    re.IGNORECASE,
)
"""The word "no" before a noun: "there is no doubt"."""
_BOXED = re.compile(r"\W{0,5}\\boxed\s?\{(?:\\text\s?\{)?(\w{2,3})\}{1,2}\W{0,5}")
_BOTH = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
_MARKS = " \t\r\n*_`\"'.,;:!()\u2581\u0120"
"""The characters around a word in a token, including the space markers of tokenizers."""


def read_yes_no(text: str) -> bool | None:
    """Reads an answer that begins with "yes" or "no" and does not contain the other word as an answer.

    Reasoning between marks is left out.

    Returns:
        True for yes, False for no, None for an unclear answer.
    """
    answer = answer_text(text)
    boxed = _BOXED.fullmatch(answer)
    found = _ANSWER.match(boxed[1] if boxed else answer)
    if not found or len({word.casefold() for word in _BOTH.findall(_DETERMINER.sub("", answer))}) != 1:
        return None
    return found[1].casefold() == "yes"


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
    return {"yes": True, "no": False}.get(token.strip(_MARKS).casefold())
